// A branch of the tree, opened: what lives below it, and the branches to go on to.

import {
  type Item,
  type ItemId,
  type NodeAnswer,
  type NodeName,
  type NodeSummary,
  type Server,
  Failure,
  kindOf,
  nameOf,
} from "./api";
import { button, find, html } from "./dom";
import { type Fate, placeOf } from "./walk";
import { count, percent, plural, score } from "./words";

/** Of more than MANY items below, the FEW most popular are shown. */
const MANY = 8;
const FEW = 5;

export interface NodeEvents {
  add(item: Item): void;
  /** Another node is shown now, or none. */
  moved(place: NodeName | null): void;
  /** The panel was closed with the focus in it. */
  left(): void;
  fateOf(place: NodeName): Fate;
  rankOf(id: ItemId): number | undefined;
  isLiked(id: ItemId): boolean;
}

export class NodePanel {
  private readonly panel = find("node");
  private asking: AbortController | null = null;
  private place: NodeName | null = null;

  constructor(
    private readonly server: Server,
    private readonly events: NodeEvents,
  ) {
    this.panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        this.close();
      }
    });
  }

  /** Show a node, below the tree. */
  async open(place: NodeName): Promise<void> {
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    const hadFocus = this.panel.contains(document.activeElement);
    this.place = place;
    this.events.moved(place);
    try {
      const answer = await this.server.node(place, asking.signal);
      if (asking.signal.aborted) return;
      const isNew = this.panel.hidden;
      this.show(answer);
      if (isNew || hadFocus) this.panel.querySelector<HTMLElement>("h3")?.focus({ preventScroll: !isNew });
    } catch (error) {
      if (asking.signal.aborted) return;
      const said = error instanceof Failure ? error.message : String(error);
      this.fill(
        html("p", {}, said),
        button("Try again", {}, () => void this.open(place)),
      );
    }
  }

  close(): void {
    this.asking?.abort();
    if (this.place === null) return;
    const hadFocus = this.panel.contains(document.activeElement);
    this.place = null;
    this.panel.hidden = true;
    this.events.moved(null);
    if (hadFocus) this.events.left();
  }

  /** Show the same node again, after another answer. */
  refresh(): void {
    if (this.place) void this.open(this.place);
  }

  private fill(...content: (Node | string)[]): void {
    this.panel.replaceChildren(
      button("×", { class: "small close", "aria-label": "Close this branch" }, () => this.close()),
      ...content,
    );
    this.panel.hidden = false;
  }

  private show(answer: NodeAnswer): void {
    const parent = answer.path.at(-2);
    const title =
      answer.level === 0 ? "The whole tree" : answer.is_leaf ? "One item" : `A branch on level ${answer.level}`;
    const name = answer.level > 0 && !answer.is_leaf ? answer.name : "";
    const shown = answer.items > MANY ? answer.sample.slice(0, FEW) : answer.sample;
    const heading =
      shown.length < answer.items
        ? `Most popular of ${plural(answer.items, "item")} below`
        : `${plural(answer.items, "item")} below`;
    this.fill(
      html(
        "div",
        {},
        html("h3", { tabindex: "-1" }, title),
        ...(parent
          ? [button("↑ level up", { class: "up", "aria-label": "One level up" }, () => void this.open(parent))]
          : []),
        ...(name ? [html("p", { class: "branch-title" }, name)] : []),
        html("p", { class: "fate" }, this.fateText(answer)),
        ...(answer.values.length && !answer.is_leaf ? [shares(answer)] : []),
      ),
      html(
        "div",
        {},
        html("h4", {}, answer.is_leaf ? (answer.items ? "The item" : "A vacant leaf") : heading),
        html("ul", { class: "sample" }, ...shown.map((item) => this.row(item))),
      ),
      ...(answer.children.length
        ? [
            html(
              "div",
              {},
              html("h4", {}, "Children"),
              html("ul", { class: "children" }, ...answer.children.map((child) => this.child(child))),
            ),
          ]
        : []),
    );
  }

  private fateText(place: NodeName): string {
    if (place.level === 0) return "Every search starts here.";
    const fate = this.events.fateOf(place);
    switch (fate.kind) {
      case "kept":
        return `Kept by the beam: rank ${fate.rank} of ${count(fate.scored)}, score ${score(fate.score ?? 0)}.`;
      case "dropped":
        return `Scored by the beam and dropped${placeOf(fate)}.`;
      case "whole":
        return "Kept: the beam is wide enough to keep this whole level.";
      case "unseen":
        return "Not scored by the beam.";
    }
  }

  private row(item: Item): HTMLElement {
    const rank = this.events.rankOf(item.item_id);
    const name = nameOf(item);
    return html(
      "li",
      {},
      ...(rank === undefined ? [] : [html("span", { class: "rank", title: "recommended" }, String(rank))]),
      html("span", { class: "name" }, name),
      html("span", { class: "kind" }, kindOf(item)),
      this.events.isLiked(item.item_id)
        ? html("span", { class: "small liked-mark", title: "you liked it" }, "✓")
        : button("+", { class: "small", "aria-label": `I like ${name} too` }, () => this.events.add(item)),
    );
  }

  private child(child: NodeSummary): HTMLElement {
    const kind = this.events.fateOf(child).kind;
    const examples = child.sample.map(nameOf).join(" · ");
    const go = button("", { class: `child ${kind}` }, () => void this.open(child));
    go.append(
      html("span", { class: "dot" }),
      html("span", { class: "name" }, child.name || plural(child.items, "item")),
      html("span", { class: "kind" }, `${child.name ? `${plural(child.items, "item")}: ` : ""}${examples}`),
    );
    return html("li", {}, go);
  }
}

function shares(answer: NodeAnswer): HTMLElement {
  return html(
    "ul",
    { class: "shares", "aria-label": "Most frequent categories below" },
    ...answer.values.slice(0, 3).map((value) => {
      const bar = html("span", { class: "share-bar", "aria-hidden": "true" });
      bar.style.setProperty("--share", String(value.count / answer.items));
      return html(
        "li",
        {},
        html("span", { class: "name" }, String(value.value)),
        bar,
        html("span", { class: "kind" }, percent(value.count, answer.items)),
      );
    }),
  );
}
