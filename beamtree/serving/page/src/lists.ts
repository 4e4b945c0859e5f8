// The two lists of items: what was liked, and what is recommended.

import { type Evidence, type Item, type ItemId, type Recommendation, type RecommendedItem, kindOf, nameOf } from "./api";
import { button, find, html } from "./dom";
import { score, sumOf } from "./words";

export interface Liked extends Item {
  isUnknown?: boolean;
}

/** The history, newest first. The network reads the latest `readLength` items; older ones are shown paler. */
export function showHistory(history: Liked[], readLength: number, remove: (index: number) => void): void {
  find("history").replaceChildren(
    ...history
      .map((item, index) => {
        const isTooOld = index < history.length - readLength;
        const aside = item.isUnknown ? "not known to this model" : isTooOld ? "too long ago to count" : kindOf(item);
        return html(
          "li",
          { class: item.isUnknown || isTooOld ? "pale" : "" },
          html("span", { class: "name" }, nameOf(item)),
          html("span", { class: "kind" }, aside),
          button("×", { class: "small", "aria-label": `Remove ${nameOf(item)}` }, () => remove(index)),
        );
      })
      .reverse(),
  );
}

export interface RecommendationEvents {
  /** The pointer or the focus is on an item, or on none. */
  point(item: RecommendedItem | null): void;
  pin(item: RecommendedItem): void;
  add(item: Item): void;
}

/** Ranks of the last answer, to tell what moved when only the beam width changed. */
export type Ranks = Map<ItemId, number>;

export function ranksOf(answer: Recommendation): Ranks {
  return new Map(answer.items.map((item) => [item.item_id, item.rank]));
}

export function showRecommendations(answer: Recommendation, before: Ranks | null, events: RecommendationEvents): void {
  const list = find("recommendations");
  const scores = answer.items.map((item) => item.score ?? 0);
  const best = Math.max(...scores);
  const worst = Math.min(...scores);
  const focused = document.activeElement?.closest<HTMLElement>("#recommendations [data-item]")?.dataset["item"];
  list.replaceChildren(
    ...answer.items.map((item) => {
      const name = nameOf(item);
      const way = button("", { class: "recommendation", "data-item": item.item_id, "aria-pressed": "false" }, () =>
        events.pin(item),
      );
      const bar = html("span", { class: "bar", "aria-hidden": "true" });
      bar.style.setProperty(
        "--share",
        String(best > worst ? 0.2 + (0.8 * ((item.score ?? 0) - worst)) / (best - worst) : 1),
      );
      way.append(
        html("span", { class: "rank", "aria-hidden": "true" }, String(item.rank)),
        html(
          "span",
          { class: "what" },
          html("span", { class: "name" }, name),
          html("span", { class: "kind" }, kindOf(item)),
        ),
        html(
          "span",
          { class: "figure" },
          moved(item, before),
          ...(item.score === null
            ? []
            : [html("span", { class: "score", title: sumOf(item.parts) || "score: higher is better" }, score(item.score)), bar]),
        ),
        ...because(item.because_of ?? [], Object.keys(item.parts ?? {}).length > 1),
      );
      way.addEventListener("focus", () => events.point(item));
      way.addEventListener("blur", () => events.point(null));
      const row = html(
        "li",
        {},
        way,
        button("+", { class: "small", "aria-label": `I like ${name} too`, title: "I like this too" }, () =>
          events.add(item),
        ),
      );
      row.addEventListener("pointerenter", () => events.point(item));
      row.addEventListener("pointerleave", () => events.point(null));
      return row;
    }),
  );
  showLegend(answer.items);
  if (focused !== undefined) list.querySelector<HTMLElement>(`[data-item="${CSS.escape(focused)}"]`)?.focus();
}

export function showPinned(pinned: ItemId | null): void {
  for (const way of find("recommendations").querySelectorAll<HTMLElement>("[data-item]")) {
    way.setAttribute("aria-pressed", String(way.dataset["item"] === pinned));
  }
}

/** "because of" the item of the history that speaks most for it, and the part of the score that it speaks through. */
function because(evidence: Evidence[], tellsParts: boolean): HTMLElement[] {
  const [first] = evidence;
  if (!first) return [];
  const reasons = evidence.map((item) => (tellsParts ? `${reasonOf(item)} (${item.part})` : reasonOf(item)));
  return [
    html(
      "span",
      { class: "because", title: `because of ${reasons.join(", ")}` },
      ...(tellsParts ? [mark(first.part)] : []),
      "because of ",
      html("span", { class: "reason" }, reasonOf(first)),
    ),
  ];
}

/** The shape that stands for a part of the score. */
const mark = (part: string): HTMLElement => html("span", { class: "mark", "data-part": part, "aria-hidden": "true" });

/** Which shape stands for which part of the score; nothing where a single part is the whole score. */
function showLegend(answer: RecommendedItem[]): void {
  const parts = Object.keys(answer[0]?.parts ?? {});
  const named = new Set(answer.flatMap((item) => (item.because_of ?? []).slice(0, 1).map((reason) => reason.part)));
  const shown = parts.length > 1 ? parts.filter((part) => named.has(part)) : [];
  const legend = find("reasons-legend");
  legend.replaceChildren(...shown.map((part) => html("li", {}, mark(part), MEANINGS[part] ?? part)));
  legend.hidden = shown.length === 0;
}

const MEANINGS: Record<string, string> = {
  memory: "memory (counted)",
  tower: "tower (learned)",
};

const reasonOf = (item: Evidence): string => item.title?.trim() || item.item_id;

function moved(item: RecommendedItem, before: Ranks | null): HTMLElement {
  const rank = before?.get(item.item_id);
  if (!before || rank === item.rank) return html("span", { class: "moved" });
  if (rank === undefined) return html("span", { class: "moved new" }, "new");
  const climbed = rank - item.rank;
  return html("span", { class: "moved" }, climbed > 0 ? `↑${climbed}` : `↓${-climbed}`);
}
