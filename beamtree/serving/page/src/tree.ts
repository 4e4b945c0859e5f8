// The drawing: levels from top to bottom, what the beam kept and dropped, and the way to each recommended item.

import { type Beam, type NodeName, type RecommendedItem, type Recommendation, type TreeFacts, nameOf } from "./api";
import { find, svg } from "./dom";
import { type Axis, childrenOf, leafRange, makeAxis, parentOf, wayTo } from "./geometry";
import { count, score } from "./words";

/** Of the nodes of a level, so many are drawn one by one and can be opened; the rest is drawn as thin strokes. */
const OPENABLE = 36;
const LINKED = 160;

const key = ({ level, node }: NodeName): string => `${level}/${node}`;

interface Drawn extends NodeName {
  x: number;
  y: number;
  label: string;
}

/** How a node fared: kept by the beam, looked at and dropped, or never looked at. */
export interface Fate {
  kind: "whole" | "kept" | "dropped" | "unseen";
  rank: number | null;
  score: number | null;
  scored: number;
}

export class Tree {
  private readonly frame = find("tree-frame");
  private readonly drawing = find<SVGSVGElement>("tree");
  private axis: Axis = (leaf) => leaf;
  private answer: Recommendation | null = null;
  private drawn = new Map<string, Drawn>();
  private fates = new Map<string, Fate>();
  private current = "0/0";
  private opened: NodeName | null = null;
  private pointed: RecommendedItem | null = null;
  private width = 0;

  constructor(
    private facts: TreeFacts,
    private readonly open: (place: NodeName) => void,
    private readonly describe: (text: string) => void,
  ) {
    new ResizeObserver(() => {
      if (this.frame.clientWidth !== this.width) this.draw(false);
    }).observe(this.frame);
    this.drawing.addEventListener("click", (event) => {
      const place = this.nearest(event);
      if (place) this.visit(place, true);
    });
    this.drawing.addEventListener("pointermove", (event) => this.hover(this.nearest(event)));
    this.drawing.addEventListener("pointerleave", () => this.hover(null));
    this.drawing.addEventListener("focusin", (event) => {
      const place = this.placeOf(event.target);
      if (place) {
        this.visit(place, false);
        this.hover(place);
      }
    });
    this.drawing.addEventListener("focusout", () => this.hover(null));
    this.drawing.addEventListener("keydown", (event) => this.press(event));
  }

  show(facts: TreeFacts, answer: Recommendation, isNewWalk: boolean): void {
    this.facts = facts;
    this.answer = answer;
    find("tree-empty").hidden = Boolean(answer.beam);
    this.draw(isNewWalk);
  }

  /** Highlight the way to an item, or none. */
  point(item: RecommendedItem | null): void {
    this.pointed = item;
    this.drawHighlight();
  }

  /** Ring a node that is being looked into, or none. */
  ring(place: NodeName | null): void {
    this.opened = place;
    this.drawRing();
  }

  focus(): void {
    this.drawing.querySelector<SVGGElement>('[tabindex="0"]')?.focus();
  }

  fateOf(place: NodeName): Fate {
    const known = this.fates.get(key(place));
    if (known) return known;
    const beam = this.answer?.beam;
    const unseen: Fate = { kind: "unseen", rank: null, score: null, scored: 0 };
    if (!beam) return unseen;
    const level = beam.levels.find((searched) => searched.level === place.level);
    const first = beam.levels[0]?.level ?? 0;
    if (!level) return place.level < first && !beam.exact ? { ...unseen, kind: "whole" } : unseen;
    const parent = parentOf(this.facts, place);
    const wasReached = level.level === first || this.fates.get(key(parent))?.kind === "kept";
    return wasReached ? { ...unseen, kind: "dropped", scored: level.scored } : unseen;
  }

  private draw(isNewWalk: boolean): void {
    this.width = this.frame.clientWidth;
    if (!this.answer || this.width === 0) return;
    const { facts } = this;
    const beam = this.answer.beam ?? null;
    const isNarrow = this.width < 480;
    const left = isNarrow ? 22 : 66;
    const right = isNarrow ? 54 : 92;
    const gap = Math.max(22, Math.min(38, 400 / facts.height));
    const top = 26;
    const room = this.width - left - right;
    const leaves = this.answer.items.flatMap((item) => item.path?.at(-1)?.node ?? []);
    this.axis = makeAxis(facts, leaves, beam?.levels ?? [], leaves.length ? Math.min(0.72, Math.max(0.4, (leaves.length * 22) / room)) : 0);
    const xOf = (place: NodeName): number => {
      const [first, end] = leafRange(facts, place);
      return left + (room * (this.axis(first) + this.axis(end))) / 2;
    };
    const yOf = (level: number): number => top + gap * level;
    this.place = (place) => ({ x: xOf(place), y: yOf(place.level) });

    this.noteFates(beam);
    this.drawn.clear();
    const rows: SVGElement[] = [];
    const onTheWay = new Map<string, NodeName>();
    for (const item of this.answer.items) for (const step of item.path ?? []) onTheWay.set(key(step), step);
    for (let level = 0; level <= facts.height; level++) {
      const row = this.drawLevel(level, beam, onTheWay, isNarrow, left, right);
      row.style.setProperty("--level", String(level));
      rows.push(row);
    }
    const marks = svg("g", { class: "marks" });
    this.answer.items.forEach((item) => {
      const leaf = item.path?.at(-1);
      if (leaf) marks.append(this.drawRecommended(item, leaf));
    });
    marks.style.setProperty("--level", String(facts.height));
    const height = yOf(facts.height) + 24;
    this.drawing.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.drawing.setAttribute("width", String(this.width));
    this.drawing.setAttribute("height", String(height));
    const hadFocus = this.drawing.contains(document.activeElement);
    this.drawing.replaceChildren(
      ...rows,
      marks,
      svg("g", { class: "ring" }),
      svg("g", { class: "hover" }),
      svg("g", { class: "highlight" }),
    );
    this.drawing.classList.toggle("without-beam", !beam);
    this.drawing.classList.remove("walking");
    if (isNewWalk && beam) {
      void this.drawing.getBoundingClientRect();
      this.drawing.classList.add("walking");
    }
    if (!this.drawn.has(this.current)) this.current = "0/0";
    this.drawing.querySelector(`[data-node="${this.current}"]`)?.setAttribute("tabindex", "0");
    if (hadFocus) this.focus();
    this.drawRing();
    this.drawHighlight();
  }

  private place: (place: NodeName) => { x: number; y: number } = () => ({ x: 0, y: 0 });

  private noteFates(beam: Beam | null): void {
    this.fates.clear();
    for (const level of beam?.levels ?? []) {
      level.nodes.forEach((node, index) => {
        this.fates.set(key({ level: level.level, node }), {
          kind: "kept",
          rank: index + 1,
          score: level.scores[index] ?? null,
          scored: level.scored,
        });
      });
    }
  }

  private drawLevel(level: number, beam: Beam | null, onTheWay: Map<string, NodeName>, isNarrow: boolean, left: number, right: number): SVGGElement {
    const { facts } = this;
    const size = facts.level_sizes[level]!;
    const searched = beam?.levels.find((known) => known.level === level);
    const isLeafLevel = level === facts.height;
    const isAbove = !searched && !isLeafLevel && (!beam || !beam.exact);
    const kept: NodeName[] = searched
      ? searched.nodes.map((node) => ({ level, node }))
      : isAbove && size <= 64
        ? Array.from({ length: size }, (_, node) => ({ level, node }))
        : [];
    const ways = [...onTheWay.values()].filter((step) => step.level === level);
    if (level === 0) ways.push({ level: 0, node: 0 });
    const keptKeys = new Set(kept.map(key));
    const dropped =
      searched && !isLeafLevel
        ? this.reachedOn(level, beam!).filter((place) => !keptKeys.has(key(place)))
        : [];

    const group = svg("g", { class: "level" });
    const y = this.place({ level, node: 0 }).y;
    group.append(svg("line", { class: "track", x1: left, x2: this.width - right, y1: y, y2: y }));
    const link = (place: NodeName): string => {
      const from = this.place(parentOf(facts, place));
      const to = this.place(place);
      const middle = (from.y + to.y) / 2;
      return `M${from.x.toFixed(1)} ${from.y}C${from.x.toFixed(1)} ${middle} ${to.x.toFixed(1)} ${middle} ${to.x.toFixed(1)} ${to.y}`;
    };
    if (level > 0) {
      group.append(
        svg("path", { class: "link dropped", d: dropped.slice(0, LINKED).map(link).join("") }),
        svg("path", { class: "link kept", d: kept.slice(0, LINKED).map(link).join("") }),
        svg("path", { class: "link way", d: ways.map(link).join("") }),
      );
    }
    const spacing = (this.width - left - right) / Math.max(1, kept.length + dropped.length);
    const radius = Math.max(1.5, Math.min(5, spacing * 0.4));
    const asStrokes = (places: NodeName[], kind: string): SVGPathElement =>
      svg("path", {
        class: `strokes ${kind}`,
        d: places.map((place) => `M${this.place(place).x.toFixed(1)} ${y - 3}v6`).join(""),
      });
    const openable = new Map([...ways, ...kept].slice(0, ways.length + OPENABLE).map((place) => [key(place), place]));
    group.append(
      asStrokes(dropped.slice(OPENABLE), "dropped"),
      asStrokes(kept.filter((place) => !openable.has(key(place))), "kept"),
    );
    for (const place of dropped.slice(0, OPENABLE)) group.append(this.drawNode(place, "dropped", Math.min(radius, 3)));
    for (const [name, place] of openable) {
      const isWay = onTheWay.has(name) || level === 0;
      group.append(this.drawNode(place, isWay ? "way" : "kept", isWay ? Math.max(radius, 4.5) : radius));
    }
    const name = level === 0 ? (isNarrow ? "" : "all items") : isLeafLevel && !isNarrow ? "items" : isNarrow ? String(level) : `level ${level}`;
    group.append(svg("text", { class: "level-name", x: 0, y: y + 4 }, name));
    const figure = searched
      ? isLeafLevel
        ? `${isNarrow ? "" : "best "}${count(searched.kept)} of ${count(searched.scored)}`
        : `${isNarrow ? "" : "kept "}${count(searched.kept)} of ${count(searched.scored)}`
      : isAbove && beam && level > 0
        ? isNarrow ? `all ${count(size)}` : `kept all ${count(size)}`
        : isNarrow ? "" : level > 0 && !beam ? count(size) : "";
    group.append(svg("text", { class: "level-figure", x: this.width, y: y + 4, "text-anchor": "end" }, figure));
    return group;
  }

  /** All nodes of a searched level that the beam looked at: the children of what it kept above. */
  private reachedOn(level: number, beam: Beam): NodeName[] {
    const above = beam.levels.find((known) => known.level === level - 1);
    if (above) return above.nodes.flatMap((node) => childrenOf(this.facts, { level: level - 1, node }));
    const size = this.facts.level_sizes[level]!;
    return size <= 4096 ? Array.from({ length: size }, (_, node) => ({ level, node })) : [];
  }

  private drawNode(place: NodeName, kind: "way" | "kept" | "dropped", radius: number): SVGGElement {
    const { x, y } = this.place(place);
    const label = this.labelOf(place);
    this.drawn.set(key(place), { ...place, x, y, label });
    return svg(
      "g",
      { class: `node-mark ${kind}`, "data-node": key(place), role: "button", tabindex: -1, "aria-label": label },
      svg("circle", { cx: x.toFixed(1), cy: y, r: radius.toFixed(1) }),
    );
  }

  private drawRecommended(item: RecommendedItem, leaf: NodeName): SVGGElement {
    const { x, y } = this.place(leaf);
    const leaves = [...this.drawn.values()].filter((other) => other.level === leaf.level && other.node !== leaf.node);
    const nearest = Math.min(...leaves.map((other) => Math.abs(other.x - x)), 40);
    const radius = Math.max(5, Math.min(9.5, nearest * 0.48));
    this.drawn.set(key(leaf), { ...leaf, x, y, label: `${item.rank}. ${nameOf(item)}` });
    this.drawing.querySelector(`[data-node="${key(leaf)}"]`)?.remove();
    return svg(
      "g",
      {
        class: "recommended",
        "data-recommended": item.item_id,
        "data-node": key(leaf),
        role: "button",
        tabindex: -1,
        "aria-label": `Recommended, rank ${item.rank}: ${nameOf(item)}`,
      },
      svg("circle", { cx: x.toFixed(1), cy: y, r: radius.toFixed(1) }),
      svg("text", { x: x.toFixed(1), y: y + radius * 0.37, "text-anchor": "middle", "font-size": (radius * 1.08).toFixed(1) }, String(item.rank)),
    );
  }

  private labelOf(place: NodeName): string {
    if (place.level === 0) return "The top of the tree: all items are below";
    const fate = this.fateOf(place);
    const where = `Level ${place.level}, branch ${count(place.node + 1)} of ${count(this.facts.level_sizes[place.level]!)}`;
    switch (fate.kind) {
      case "kept":
        return `${where}: kept, place ${fate.rank} of ${count(fate.scored)} looked at, score ${score(fate.score ?? 0)}`;
      case "dropped":
        return `${where}: looked at and dropped`;
      case "whole":
        return `${where}: kept, as all are on this level`;
      default:
        return where;
    }
  }

  private drawHighlight(): void {
    const layer = this.drawing.querySelector(".highlight");
    if (!layer) return;
    const path = this.pointed?.path ?? null;
    this.drawing.classList.toggle("has-highlight", Boolean(path));
    if (!this.pointed || !path) {
      layer.replaceChildren();
      this.describe("");
      return;
    }
    const points = [{ level: 0, node: 0 }, ...path].map((step) => this.place(step));
    const line = points
      .map(({ x, y }, index) => {
        if (index === 0) return `M${x.toFixed(1)} ${y}`;
        const from = points[index - 1]!;
        const middle = (from.y + y) / 2;
        return `C${from.x.toFixed(1)} ${middle} ${x.toFixed(1)} ${middle} ${x.toFixed(1)} ${y}`;
      })
      .join("");
    const leaf = points.at(-1)!;
    layer.replaceChildren(
      svg("path", { class: "halo", d: line }),
      svg("path", { class: "line", d: line }),
      ...points.slice(0, -1).map(({ x, y }) => svg("circle", { cx: x.toFixed(1), cy: y, r: 4.5 })),
      ...path.slice(0, -1).flatMap((step, index) => {
        if (step.rank === null) return [];
        const { x, y } = points[index + 1]!;
        const isLeft = x > this.width * 0.62;
        return [svg("text", { x: (x + (isLeft ? -9 : 9)).toFixed(1), y: y + 4, "text-anchor": isLeft ? "end" : "start" }, `#${step.rank}`)];
      }),
      svg("circle", { class: "leaf", cx: leaf.x.toFixed(1), cy: leaf.y, r: 11 }),
      svg("text", { class: "leaf-rank", x: leaf.x.toFixed(1), y: leaf.y + 4.2, "text-anchor": "middle" }, String(this.pointed.rank)),
    );
    const ranked = path.filter((step) => step.rank !== null);
    const lowest = Math.max(...ranked.map((step) => step.rank!));
    this.describe(
      ranked.length
        ? `The way to ${nameOf(this.pointed)}: # is its place among all nodes looked at on a level; at its lowest ${lowest}.`
        : `The way to ${nameOf(this.pointed)}.`,
    );
  }

  private drawRing(): void {
    const layer = this.drawing.querySelector(".ring");
    if (!layer) return;
    if (!this.opened) return layer.replaceChildren();
    const points = [{ level: 0, node: 0 }, ...wayTo(this.facts, this.opened)].map((step) => this.place(step));
    const end = points.at(-1)!;
    layer.replaceChildren(
      svg("path", { d: points.map(({ x, y }, index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y}`).join("") }),
      svg("circle", { cx: end.x.toFixed(1), cy: end.y, r: 12 }),
    );
  }

  private hover(place: NodeName | null): void {
    const layer = this.drawing.querySelector(".hover");
    const found = place && this.drawn.get(key(place));
    this.drawing.classList.toggle("on-node", Boolean(found));
    layer?.replaceChildren(...(found ? [svg("circle", { cx: found.x.toFixed(1), cy: found.y, r: 9 })] : []));
    if (!this.pointed?.path) this.describe(found ? `${found.label}. Select it to see what is below.` : "");
  }

  private placeOf(target: EventTarget | null): NodeName | null {
    const name = (target as Element | null)?.closest?.("[data-node]")?.getAttribute("data-node");
    return (name && this.drawn.get(name)) || null;
  }

  private nearest(event: MouseEvent): NodeName | null {
    const direct = this.placeOf(event.target);
    if (direct) return direct;
    const box = this.drawing.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    let best: Drawn | null = null;
    let least = 16;
    for (const node of this.drawn.values()) {
      const distance = Math.hypot(node.x - x, node.y - y);
      if (distance < least) [best, least] = [node, distance];
    }
    return best;
  }

  private visit(place: NodeName, isOpening: boolean): void {
    this.drawing.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
    this.current = key(place);
    this.drawing.querySelector(`[data-node="${this.current}"]`)?.setAttribute("tabindex", "0");
    if (isOpening) this.open({ level: place.level, node: place.node });
  }

  private press(event: KeyboardEvent): void {
    const from = this.drawn.get(this.current);
    if (!from) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.visit(from, true);
      return;
    }
    const to = this.neighbour(from, event.key);
    if (!to) return;
    event.preventDefault();
    this.visit(to, false);
    this.focus();
  }

  /** Up: the parent; down: the best drawn child, or else the nearest node below; left, right: on the same level. */
  private neighbour(from: Drawn, pressed: string): Drawn | null {
    const onLevel = (level: number): Drawn[] =>
      [...this.drawn.values()].filter((node) => node.level === level).sort((one, other) => one.x - other.x);
    switch (pressed) {
      case "ArrowUp":
        return (from.level > 0 && this.drawn.get(key(parentOf(this.facts, from)))) || null;
      case "ArrowDown": {
        const below = onLevel(from.level + 1);
        const own = below.filter((node) => key(parentOf(this.facts, node)) === key(from));
        const rank = (node: Drawn): number => this.fateOf(node).rank ?? Number.MAX_SAFE_INTEGER;
        return own.sort((one, other) => rank(one) - rank(other))[0] ?? closest(below, from.x);
      }
      case "ArrowLeft":
      case "ArrowRight": {
        const row = onLevel(from.level);
        const place = row.findIndex((node) => node.node === from.node);
        return row[place + (pressed === "ArrowRight" ? 1 : -1)] ?? null;
      }
      default:
        return null;
    }
  }
}

function closest(nodes: Drawn[], x: number): Drawn | null {
  return nodes.reduce<Drawn | null>((best, node) => (!best || Math.abs(node.x - x) < Math.abs(best.x - x) ? node : best), null);
}
