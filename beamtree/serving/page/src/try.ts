// A form that sends a request as the docs describe it, shows the answer, and spells the same request for a terminal.

import { button, html } from "./dom";
import type { Parameter, Route } from "./docs";
import { type Schemas, choicesOf, pretty, resolve, typeOf } from "./schema";

export class TryOut {
  readonly element: HTMLElement;
  private readonly inputs: [Parameter, HTMLInputElement][];
  private readonly body: HTMLTextAreaElement | null;
  private readonly status = html("p", { class: "status", role: "status" });
  private readonly answer = html("pre", { tabindex: "0", hidden: true, "aria-label": "Answer" });

  /** example: the body to start with; null for a route that takes none. */
  constructor(
    private readonly route: Route,
    example: string | null,
    all: Schemas,
  ) {
    this.inputs = (route.parameters ?? [])
      .filter((parameter) => parameter.in === "path" || parameter.in === "query")
      .map((parameter) => [parameter, inputFor(parameter, all)]);
    this.body =
      example === null
        ? null
        : html("textarea", { rows: example.split("\n").length, spellcheck: "false", "aria-label": "Body of the request" }, example);
    const copy = button("Copy as curl", {}, () => void this.copy(copy));
    const form = html(
      "form",
      {},
      ...this.inputs.map(([{ name }, input]) => html("label", {}, html("code", {}, name), input)),
      ...(this.body ? [this.body] : []),
      html("div", { class: "actions" }, html("button", { type: "submit", class: "send" }, "Send"), copy, this.status),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.send();
    });
    this.element = html("div", { class: "try" }, html("h3", {}, "Try it"), form, this.answer);
  }

  /** The address relative to the page, so that it also works behind a proxy with a prefix. */
  private get address(): string {
    let path = this.route.path;
    const query = new URLSearchParams();
    for (const [{ name, in: place }, { value }] of this.inputs) {
      if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(value));
      else if (value !== "") query.append(name, value);
    }
    return `.${path}${query.size ? `?${query}` : ""}`;
  }

  private async send(): Promise<void> {
    const { method } = this.route;
    const headers = { "Content-Type": "application/json" };
    const started = performance.now();
    this.status.textContent = "…";
    try {
      const response = await fetch(this.address, this.body ? { method, headers, body: this.body.value } : { method });
      const text = await response.text();
      this.status.textContent = `${response.status}, ${Math.round(performance.now() - started)} ms`;
      this.answer.textContent = readable(text);
    } catch (error) {
      this.status.textContent = "no answer";
      this.answer.textContent = `The server cannot be reached: ${error}`;
    }
    this.answer.hidden = false;
  }

  private async copy(pressed: HTMLButtonElement): Promise<void> {
    const said = pressed.textContent;
    try {
      await navigator.clipboard.writeText(this.curl);
      pressed.textContent = "Copied";
    } catch {
      this.answer.textContent = this.curl;
      this.answer.hidden = false;
    }
    setTimeout(() => (pressed.textContent = said), 1500);
  }

  get curl(): string {
    const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
    const address = new URL(this.address, document.baseURI).href;
    const body = this.body ? ` -H 'Content-Type: application/json' -d ${quoted(compact(this.body.value))}` : "";
    return `curl -s${this.route.method === "GET" || this.body ? "" : ` -X ${this.route.method}`} ${quoted(address)}${body}`;
  }
}

function inputFor(parameter: Parameter, all: Schemas): HTMLInputElement {
  const [choice] = choicesOf(parameter.schema, all);
  const known = parameter.example ?? (choice && resolve(choice, all).schema.examples?.[0]) ?? "";
  return html("input", {
    type: "text",
    value: typeof known === "object" ? "" : String(known),
    placeholder: parameter.schema.default === undefined ? typeOf(parameter.schema, all) : String(parameter.schema.default),
    required: parameter.required ?? false,
  });
}

function readable(text: string): string {
  try {
    return pretty(JSON.parse(text));
  } catch {
    return text;
  }
}

function compact(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text;
  }
}
