// The drawing: levels from top to bottom, what the beam kept and dropped, and the way to each recommended item.

import { type NodeName, type RecommendedItem, nameOf } from "./api";
import { find, svg } from "./dom";
import { leafRange, makeAxis, parentOf, wayTo } from "./geometry";
import { type Label, fitLabels, shortened } from "./labels";
import { type Fate, type Row, type Walk, key } from "./walk";
import { count, plural, score, sumOf } from "./words";

/** A level with more nodes than this is drawn as thin strokes, but for those on the way to recommended items. */
const CROWDED = 72;
const ROOM_PER_RECOMMENDED = 20.5;
const REACH = 16;
/** Titles stand aslant below the leaves, steeper where these are close together. */
const TITLES = { wide: { length: 22, slant: 40 }, narrow: { length: 17, slant: 56 } };

interface Point {
  x: number;
  y: number;
}

interface Drawn extends NodeName, Point {
  /** Strokes can be pointed at, but take no keyboard focus. */
  isStroke: boolean;
}

export interface TreeEvents {
  /** A node was selected, so many pixels below the top of the drawing. */
  open(place: NodeName, y: number): void;
  /** Words on what is being pointed at; empty for nothing. */
  describe(text: string): void;
}

export class Tree {
  private readonly frame = find("tree-frame");
  private readonly drawing = find<SVGSVGElement>("tree");
  private walk: Walk | null = null;
  private drawn = new Map<string, Drawn>();
  private current = "0/0";
  private opened: NodeName | null = null;
  private pointed: RecommendedItem | null = null;
  private width = 0;
  private place: (place: NodeName) => Point = () => ({ x: 0, y: 0 });

  constructor(private readonly events: TreeEvents) {
    new ResizeObserver(() => {
      if (this.frame.clientWidth !== this.width) this.draw(false);
    }).observe(this.frame);
    this.drawing.addEventListener("click", (event) => {
      const place = this.nearest(event);
      if (place) this.visit(place, true);
    });
    this.drawing.addEventListener("pointermove", (event) => this.hover(this.nearest(event)));
    this.drawing.addEventListener("pointerleave", () => this.hover(null));
    // On the frame, because focus listeners on an SVG element would make it a stop of its own for the Tab key.
    this.frame.addEventListener("focusin", (event) => this.hover(this.placeOf(event.target)));
    this.frame.addEventListener("focusout", () => this.hover(null));
    this.frame.addEventListener("keydown", (event) => this.placeOf(event.target) && this.press(event));
  }

  show(walk: Walk, isNewWalk: boolean): void {
    this.walk = walk;
    find("tree-empty").hidden = walk.beam !== null || walk.answer.items.length === 0;
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
    return this.walk!.fateOf(place);
  }

  private draw(isNewWalk: boolean): void {
    this.width = this.frame.clientWidth;
    const { walk } = this;
    if (!walk || this.width === 0) return;
    const { tree, answer, beam } = walk;
    const rows = tree.level_sizes.map((_, level) => walk.row(level));
    const isNarrow = this.width < 480;
    const longest = Math.max(...rows.map((row) => (isNarrow ? row.shortFigure : row.figure).length));
    const left = isNarrow ? 26 : 62;
    const right = Math.max(20, 10 + longest * 6.6);
    const room = this.width - left - right;
    const gap = Math.round(Math.max(22, Math.min(44, Math.max(340, 0.43 * innerHeight) / tree.height)));
    const titles = isNarrow ? TITLES.narrow : TITLES.wide;
    const leaves = answer.items.flatMap((item) => item.path?.at(-1)?.node ?? []);
    const wanted = Math.min(0.72, Math.max(0.4, (leaves.length * ROOM_PER_RECOMMENDED) / room));
    const axis = makeAxis(tree, leaves, beam?.levels ?? [], leaves.length ? wanted : 0);
    this.place = (place) => {
      const [first, end] = leafRange(tree, place);
      return { x: left + (room * (axis(first) + axis(end))) / 2, y: 24 + gap * place.level };
    };

    this.drawn.clear();
    const links = rows.map((row) => this.drawLinks(row, left, this.width - right));
    const nodes = rows.map((row) => this.drawNodes(row, isNarrow));
    const hadFocus = this.drawing.contains(document.activeElement);
    const height = 24 + gap * tree.height + 26 + (leaves.length ? 6.6 * titles.length * Math.sin((titles.slant * Math.PI) / 180) : 0);
    this.drawing.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.drawing.setAttribute("width", String(this.width));
    this.drawing.setAttribute("height", String(height));
    this.drawing.replaceChildren(
      ...links,
      ...nodes,
      ...rows.filter(({ level }) => level < tree.height).map((row) => this.drawNames(row, left, this.width - right)),
      this.drawRecommended(titles),
      ...["ring", "hover", "highlight"].map((name) => svg("g", { class: name })),
    );
    this.drawing.classList.toggle("without-beam", !beam);
    this.drawing.classList.remove("walking");
    if (isNewWalk && beam) {
      void this.drawing.getBoundingClientRect();
      this.drawing.classList.add("walking");
    }
    if (this.drawn.get(this.current)?.isStroke !== false) this.current = "0/0";
    this.drawing.querySelector(`[data-node="${this.current}"]`)?.setAttribute("tabindex", "0");
    if (hadFocus) this.focus();
    this.drawRing();
    this.drawHighlight();
  }

  private drawLinks({ level, kept, dropped, ways }: Row, start: number, end: number): SVGGElement {
    const { y } = this.place({ level, node: 0 });
    const group = inLevel(level, svg("line", { class: "track", x1: start, x2: end, y1: y, y2: y }));
    if (level === 0) return group;
    const link = (place: NodeName): string => curve([this.place(parentOf(this.walk!.tree, place)), this.place(place)]);
    const draw = (places: NodeName[], kind: string): void => {
      const isCrowded = places.length > CROWDED;
      const d = (isCrowded ? this.apart(places) : places).map(link).join("");
      group.append(svg("path", { class: `link ${kind}${isCrowded ? " crowded" : ""}`, d }));
    };
    draw(dropped, "dropped");
    draw(kept, "kept");
    draw(ways, "way");
    return group;
  }

  private drawNodes(row: Row, isNarrow: boolean): SVGGElement {
    const { level, kept, dropped, ways } = row;
    const { tree } = this.walk!;
    const { y } = this.place({ level, node: 0 });
    const group = inLevel(level);
    const wayKeys = new Set(ways.map(key));
    const others = kept.filter((place) => !wayKeys.has(key(place)));
    const isLeafLevel = level === tree.height;
    if (kept.length + dropped.length > CROWDED) {
      group.append(this.strokes(dropped, "dropped"), this.strokes(others, "kept"));
    } else {
      const roomFor = roomBetween([...dropped, ...others, ...ways].map((place) => this.place(place).x));
      const radius = (place: NodeName, most: number): number =>
        Math.max(2.1, Math.min(most, 0.5 * roomFor(this.place(place).x)));
      for (const place of dropped) group.append(this.node(place, "dropped", radius(place, 3)));
      for (const place of others) group.append(this.node(place, "kept", radius(place, 4.5)));
    }
    if (!isLeafLevel) for (const place of ways) group.append(this.node(place, "way", 5));
    const name = level === 0 ? "all items" : isLeafLevel ? "items" : `level ${level}`;
    const shortName = level === 0 ? "" : String(level);
    group.append(
      svg("text", { class: "level-name", x: 0, y: y + 4 }, isNarrow ? shortName : name),
      svg("text", { x: this.width, y: y + 4, "text-anchor": "end" }, isNarrow ? row.shortFigure : row.figure),
    );
    return group;
  }

  private node(place: NodeName, kind: "way" | "kept" | "dropped", radius: number): SVGGElement {
    const { x, y } = this.note(place, false);
    return svg(
      "g",
      {
        class: `node-mark ${kind}`,
        "data-node": key(place),
        role: "button",
        tabindex: -1,
        "aria-label": this.walk!.labelOf(place),
      },
      svg("circle", { cx: x, cy: y, r: radius.toFixed(1) }),
    );
  }

  private strokes(places: NodeName[], kind: string): SVGPathElement {
    for (const place of places) this.note(place, true);
    const points = this.apart(places).map((place) => rounded(this.place(place)));
    return svg("path", { class: `strokes ${kind}`, d: points.map(({ x, y }) => `M${x} ${y - 4}v8`).join("") });
  }

  /** The first of the nodes on each column of pixels. */
  private apart(places: NodeName[]): NodeName[] {
    const taken = new Map<number, NodeName>();
    for (const place of places) {
      const column = Math.round(this.place(place).x);
      if (!taken.has(column)) taken.set(column, place);
    }
    return [...taken.values()];
  }

  private note(place: NodeName, isStroke: boolean): Point {
    const point = rounded(this.place(place));
    this.drawn.set(key(place), { level: place.level, node: place.node, ...point, isStroke });
    return point;
  }

  /** Names beside the branches of a level that has them, where there is room. */
  private drawNames({ level, kept, dropped, ways }: Row, start: number, end: number): SVGGElement {
    const group = inLevel(level);
    const isWay = new Set(ways.map(key));
    const others = [...kept, ...dropped].filter((place) => !isWay.has(key(place)));
    const labels = [...ways, ...others].map((place): Label => {
      const { x, y } = this.place(place);
      return { x, y, text: this.walk!.nameOf(place), isImportant: isWay.has(key(place)) };
    });
    for (const { x, y, text, isImportant, isLeft } of fitLabels(labels, start, end)) {
      const anchor = { x: x + (isLeft ? -9 : 9), y: y - 5, "text-anchor": isLeft ? "end" : "start" };
      group.append(svg("text", { class: `branch-name${isImportant ? " way" : ""}`, ...anchor }, text));
    }
    return group;
  }

  private drawRecommended(titles: { length: number; slant: number }): SVGGElement {
    const { tree, answer } = this.walk!;
    const found = answer.items.flatMap((item) => {
      const leaf = item.path?.at(-1);
      return leaf ? [{ item, leaf, ...this.note(leaf, false) }] : [];
    });
    const places = found.map(({ x }) => x).sort((one, other) => one - other);
    const closestPair = Math.min(40, ...places.slice(1).map((x, index) => x - places[index]!));
    const radius = Math.max(5, Math.min(9.5, closestPair * 0.48));
    const group = inLevel(tree.height);
    group.style.setProperty("--size", `${(radius * 1.16).toFixed(1)}px`);
    for (const { item, leaf, x, y } of found) {
      const label = `Recommended, rank ${item.rank}: ${nameOf(item)}`;
      const mark = { class: "recommended", "data-node": key(leaf), role: "button", tabindex: -1, "aria-label": label };
      const rank = svg("text", { x, y: y + radius * 0.4, "text-anchor": "middle" }, String(item.rank));
      const below = { x: x - 3, y: y + radius + 11, transform: `rotate(${titles.slant} ${x - 3} ${y + radius + 8})` };
      group.append(
        svg("text", { class: "leaf-title", "aria-hidden": "true", ...below }, shortened(nameOf(item), titles.length)),
        svg("g", mark, svg("circle", { cx: x, cy: y, r: radius.toFixed(1) }), rank),
      );
    }
    return group;
  }

  private drawHighlight(): void {
    const layer = this.drawing.querySelector(".highlight");
    if (!layer) return;
    const item = this.pointed;
    const path = item?.path;
    this.drawing.classList.toggle("has-highlight", Boolean(path));
    layer.replaceChildren();
    this.describe("");
    if (!item || !path) return;
    const points = [{ level: 0, node: 0 }, ...path].map((step) => rounded(this.place(step)));
    const leaf = points.at(-1)!;
    const ranks = path.slice(0, -1).flatMap((step, index) => {
      const { x, y } = points[index + 1]!;
      const isLeft = x > this.width * 0.6;
      const anchor = { x: x + (isLeft ? -9 : 9), y: y + 4, "text-anchor": isLeft ? "end" : "start" };
      return step.rank === null ? [] : [svg("text", anchor, `#${step.rank}`)];
    });
    layer.append(
      svg("path", { class: "halo", d: curve(points) }),
      svg("path", { class: "line", d: curve(points) }),
      ...points.slice(0, -1).map(({ x, y }) => svg("circle", { cx: x, cy: y, r: 5 })),
      ...ranks,
      svg("circle", { cx: leaf.x, cy: leaf.y, r: 11 }),
      svg("text", { class: "leaf-rank", x: leaf.x, y: leaf.y + 4.3, "text-anchor": "middle" }, String(item.rank)),
    );
    this.describe("");
  }

  private drawRing(): void {
    const layer = this.drawing.querySelector(".ring");
    layer?.replaceChildren();
    if (!layer || !this.opened || !this.walk) return;
    const points = [{ level: 0, node: 0 }, ...wayTo(this.walk.tree, this.opened)].map((step) =>
      rounded(this.place(step)),
    );
    const { x, y } = points.at(-1)!;
    layer.append(svg("path", { d: curve(points) }), svg("circle", { cx: x, cy: y, r: 12 }));
  }

  private hover(place: NodeName | null): void {
    const found = place && this.drawn.get(key(place));
    this.drawing.classList.toggle("on-node", Boolean(found));
    const rings = found ? [svg("circle", { cx: found.x, cy: found.y, r: 9 })] : [];
    this.drawing.querySelector(".hover")?.replaceChildren(...rings);
    this.describe(found ? `${this.labelFor(found)}. Select it to see what is below.` : "");
  }

  private labelFor(place: NodeName): string {
    const item = this.walk!.answer.items.find((one) => one.path?.at(-1)?.node === place.node);
    return item && place.level === this.walk!.tree.height ? `${item.rank}. ${nameOf(item)}` : this.walk!.labelOf(place);
  }

  /** Say what is pointed at; with nothing there, what the highlighted way means, or what can be done. */
  private describe(text: string): void {
    const beam = this.walk?.beam;
    if (text) return this.events.describe(text);
    if (this.pointed?.path && beam) {
      const because = beam.exact
        ? "every eligible item was scored."
        : `every node on its path was among the best ${count(beam.width)} of its level; # is its rank there.`;
      const parts = sumOf(this.pointed.parts);
      const sum = parts && this.pointed.score !== null ? ` Its score ${score(this.pointed.score)} = ${parts}.` : "";
      return this.events.describe(`${nameOf(this.pointed)} was found because ${because}${sum}`);
    }
    const eligible = this.walk?.eligible ?? null;
    if (eligible !== null) {
      return this.events.describe(
        this.walk!.isFiltered
          ? `The filter leaves ${plural(eligible, "item")}, no more than the beam width: the search scores ` +
              `${eligible === 1 ? "it" : "all of them"} directly.`
          : "A beam this wide scores every item. Narrow it, and it has to choose between branches.",
      );
    }
    this.events.describe("Hover over a recommendation to see its path; select a node to see what is below it.");
  }

  private placeOf(target: EventTarget | null): NodeName | null {
    const name = (target as Element | null)?.closest?.("[data-node]")?.getAttribute("data-node");
    return (name && this.drawn.get(name)) || null;
  }

  private nearest(event: MouseEvent): NodeName | null {
    const direct = this.placeOf(event.target);
    if (direct) return direct;
    const box = this.drawing.getBoundingClientRect();
    return closest([...this.drawn.values()], { x: event.clientX - box.left, y: event.clientY - box.top }, REACH);
  }

  private visit(place: NodeName, isOpening: boolean): void {
    const mark = this.drawing.querySelector(`[data-node="${key(place)}"]`);
    if (mark) {
      this.drawing.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
      mark.setAttribute("tabindex", "0");
      this.current = key(place);
    }
    if (isOpening) this.events.open({ level: place.level, node: place.node }, this.place(place).y);
  }

  private press(event: KeyboardEvent): void {
    const from = this.drawn.get(this.current);
    if (!from) return;
    const isOpening = event.key === "Enter" || event.key === " ";
    const to = isOpening ? from : this.neighbour(from, event.key);
    if (!to) return;
    event.preventDefault();
    this.visit(to, isOpening);
    if (!isOpening) this.focus();
  }

  /** Up: the parent; down: the best child that is drawn, or else the nearest node below; left, right: same level. */
  private neighbour(from: Drawn, pressed: string): Drawn | null {
    const { tree } = this.walk!;
    const onLevel = (level: number): Drawn[] =>
      [...this.drawn.values()]
        .filter((node) => node.level === level && !node.isStroke)
        .sort((one, other) => one.x - other.x);
    switch (pressed) {
      case "ArrowUp":
        return (from.level > 0 && this.drawn.get(key(parentOf(tree, from)))) || null;
      case "ArrowDown": {
        const below = onLevel(from.level + 1);
        const rank = (node: Drawn): number => this.fateOf(node).rank ?? Number.MAX_SAFE_INTEGER;
        const own = below.filter((node) => key(parentOf(tree, node)) === key(from));
        return own.sort((one, other) => rank(one) - rank(other))[0] ?? closest(below, from, this.width);
      }
      case "ArrowLeft":
      case "ArrowRight": {
        const row = onLevel(from.level);
        const index = row.findIndex((node) => node.node === from.node);
        return row[index + (pressed === "ArrowRight" ? 1 : -1)] ?? null;
      }
      default:
        return null;
    }
  }
}

/** A group that fades in when the walk arrives on its level. */
function inLevel(level: number, ...children: SVGElement[]): SVGGElement {
  const group = svg("g", { class: "level" }, ...children);
  group.style.setProperty("--level", String(level));
  return group;
}

/** For each of these places the distance to the nearest other one. */
function roomBetween(places: number[]): (x: number) => number {
  const sorted = [...places].sort((one, other) => one - other);
  const room = new Map(
    sorted.map((x, index) => [x, Math.min(x - (sorted[index - 1] ?? -1e9), (sorted[index + 1] ?? 1e9) - x)]),
  );
  return (x) => room.get(x) ?? 0;
}

const rounded = ({ x, y }: Point): Point => ({ x: Math.round(x * 10) / 10, y });

function curve(points: Point[]): string {
  return points
    .map(rounded)
    .map(({ x, y }, index, all) => {
      const from = all[index - 1];
      if (!from) return `M${x} ${y}`;
      const middle = (from.y + y) / 2;
      return `C${from.x} ${middle} ${x} ${middle} ${x} ${y}`;
    })
    .join("");
}

function closest(nodes: Drawn[], { x, y }: Point, reach: number): Drawn | null {
  let best: Drawn | null = null;
  let least = reach;
  for (const node of nodes) {
    const distance = Math.hypot(node.x - x, node.y - y);
    if (distance < least) [best, least] = [node, distance];
  }
  return best;
}
