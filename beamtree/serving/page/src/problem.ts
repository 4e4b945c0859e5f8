// Failures, told in plain words, with a way to try again. A busy server is asked again by itself.

import { Failure } from "./api";
import { find } from "./dom";

export class Problem {
  private readonly box = find("problem");
  private readonly text = find("problem-text");
  private retry: () => void = () => undefined;
  private timer = 0;

  constructor() {
    find("retry").addEventListener("click", () => this.tryAgain());
    addEventListener("online", () => !this.box.hidden && this.tryAgain());
  }

  show(error: unknown, retry: () => void): void {
    clearTimeout(this.timer);
    this.retry = retry;
    if (!(error instanceof Failure)) console.error(error);
    const said = error instanceof Failure ? error.message : "Something went wrong on this page.";
    const seconds = error instanceof Failure ? error.retryAfterSeconds : null;
    if (seconds !== null) {
      const wait = Math.max(1, Math.round(seconds));
      this.text.textContent = `${said} Trying again in ${wait === 1 ? "a second" : `${wait} seconds`}.`;
      this.timer = window.setTimeout(() => this.tryAgain(), wait * 1000);
    } else {
      this.text.textContent = said;
    }
    this.box.hidden = false;
    document.body.classList.add("has-problem");
  }

  clear(): void {
    clearTimeout(this.timer);
    this.box.hidden = true;
    document.body.classList.remove("has-problem");
  }

  private tryAgain(): void {
    clearTimeout(this.timer);
    this.retry();
  }
}
