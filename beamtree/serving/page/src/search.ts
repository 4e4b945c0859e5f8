// Search as you type: a combobox that adds items to the history.

import { type Item, type Server, kindOf, nameOf } from "./api";
import { debounced, find, html } from "./dom";
import { count } from "./words";

const SHOWN = 8;
const WAIT_MILLISECONDS = 120;

export interface SearchEvents {
  add(item: Item): void;
  removeNewest(): void;
  /** The item that Enter would add while a text is being typed, or null. */
  consider(item: Item | null): void;
  fail(error: unknown): void;
}

export class Search {
  private readonly input = find<HTMLInputElement>("search");
  private readonly list = find("suggestions");
  private found: Item[] = [];
  private active = -1;
  /** The text that the list was found for. */
  private foundFor: string | null = null;
  /** Enter came before the list did. */
  private isEntered = false;
  private asking: AbortController | null = null;
  private readonly askSoon = debounced(() => void this.ask(), WAIT_MILLISECONDS);

  constructor(
    private readonly server: Server,
    private readonly events: SearchEvents,
    private readonly isChosen: (item: Item) => boolean,
  ) {
    this.input.addEventListener("input", () => {
      this.isEntered = false;
      this.askSoon();
    });
    this.input.addEventListener("focus", () => this.askSoon());
    this.input.addEventListener("click", () => this.list.hidden && this.askSoon());
    this.input.addEventListener("blur", () => this.close());
    this.input.addEventListener("keydown", (event) => this.press(event));
    // Before the click itself: keeps the focus, and with it the list, where it is.
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
    this.list.addEventListener("click", (event) => {
      const option = (event.target as Element).closest<HTMLElement>("[data-index]");
      if (option) this.choose(Number(option.dataset["index"]));
    });
  }

  private get text(): string {
    return this.input.value.trim();
  }

  private press(event: KeyboardEvent): void {
    const isOpen = !this.list.hidden;
    switch (event.key) {
      case "ArrowDown":
      case "ArrowUp": {
        event.preventDefault();
        if (!isOpen) return void this.ask();
        const step = event.key === "ArrowDown" ? 1 : -1;
        const places = this.found.length;
        if (places) this.activate(this.active < 0 && step < 0 ? places - 1 : (this.active + step + places) % places);
        return;
      }
      case "Enter":
        if (event.isComposing) return;
        event.preventDefault();
        if (isOpen && this.foundFor === this.text) this.choose(this.active);
        else if (this.text) {
          this.isEntered = true;
          void this.ask();
        }
        return;
      case "Escape":
        if (isOpen || this.input.value) event.preventDefault();
        if (!isOpen) this.input.value = "";
        this.close();
        return;
      case "Backspace":
        if (this.input.value === "") this.events.removeNewest();
    }
  }

  private async ask(): Promise<void> {
    this.askSoon.cancel();
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    const text = this.text;
    try {
      const answer = await this.server.findItems(text, SHOWN, asking.signal);
      if (asking.signal.aborted || document.activeElement !== this.input) return;
      this.show(answer.items, answer.matches, text);
    } catch (error) {
      if (!asking.signal.aborted) this.events.fail(error);
    }
  }

  private show(items: Item[], matches: number, text: string): void {
    this.found = items;
    this.foundFor = text;
    const heading = text === "" ? "Popular" : matches === 0 ? "Nothing found. Try fewer letters." : "";
    const more = text !== "" && matches > items.length ? `and ${count(matches - items.length)} more` : "";
    this.list.replaceChildren(
      ...(heading ? [html("li", { role: "presentation", class: "aside" }, heading)] : []),
      ...items.map((item, index) => this.option(item, index, text)),
      ...(more ? [html("li", { role: "presentation", class: "aside" }, more)] : []),
    );
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    const fresh = items.findIndex((item) => !this.isChosen(item));
    this.activate(text !== "" && items.length ? Math.max(0, fresh) : -1);
    if (this.isEntered) this.choose(this.active);
  }

  private option(item: Item, index: number, text: string): HTMLElement {
    return html(
      "li",
      { role: "option", id: `suggestion-${index}`, "data-index": index, "aria-selected": "false" },
      html("span", { class: "name" }, ...marked(nameOf(item), text)),
      html("span", { class: "kind" }, this.isChosen(item) ? "already there" : kindOf(item)),
    );
  }

  private activate(index: number): void {
    this.active = index;
    for (const option of this.list.querySelectorAll<HTMLElement>("[data-index]")) {
      const isActive = Number(option.dataset["index"]) === index;
      option.setAttribute("aria-selected", String(isActive));
      if (isActive) option.scrollIntoView({ block: "nearest" });
    }
    if (index >= 0) this.input.setAttribute("aria-activedescendant", `suggestion-${index}`);
    else this.input.removeAttribute("aria-activedescendant");
    const item = this.found[index];
    this.events.consider(item && this.text && !this.isChosen(item) ? item : null);
  }

  private choose(index: number): void {
    const item = this.found[index];
    if (!item) return;
    this.input.value = "";
    this.close();
    this.events.add(item);
  }

  private close(): void {
    this.askSoon.cancel();
    this.asking?.abort();
    this.found = [];
    this.foundFor = null;
    this.isEntered = false;
    this.active = -1;
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
    this.events.consider(null);
  }
}

/** The name with the searched text marked, where it is in it. */
function marked(name: string, text: string): (Node | string)[] {
  const lowered = name.toLowerCase();
  const start = text && lowered.length === name.length ? lowered.indexOf(text.toLowerCase()) : -1;
  if (start < 0) return [name];
  const end = start + text.length;
  return [name.slice(0, start), html("mark", {}, name.slice(start, end)), name.slice(end)];
}
