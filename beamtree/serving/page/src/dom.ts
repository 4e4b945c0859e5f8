// Building elements. Text is only ever set as text, never parsed as markup.

export type Child = Node | string;
export type Attributes = Record<string, string | number | boolean>;

const SVG = "http://www.w3.org/2000/svg";

function fill<E extends Element>(made: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false) made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

export function html<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function button(label: string, attributes: Attributes, onClick: () => void): HTMLButtonElement {
  const made = html("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", onClick);
  return made;
}

/** The element of index.html with this id. */
export function find<E extends Element = HTMLElement>(id: string): E {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no element #${id}`);
  return found as unknown as E;
}

/** Runs `action` once nothing has called for `milliseconds`; the latest arguments win. */
export function debounced<A extends unknown[]>(action: (...given: A) => void, milliseconds: number) {
  let timer = 0;
  const later = (...given: A): void => {
    clearTimeout(timer);
    timer = window.setTimeout(() => action(...given), milliseconds);
  };
  later.cancel = (): void => clearTimeout(timer);
  return later;
}
