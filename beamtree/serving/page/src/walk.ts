// What the beam did: how each node fared, and what there is to draw on each level.

import type { Beam, BeamLevel, Branch, NodeName, Recommendation, TreeFacts } from "./api";
import { parentOf } from "./geometry";
import { count, score } from "./words";

/** How a node fared: on a level that was kept whole, kept by the beam, looked at and dropped, or never looked at. */
export interface Fate {
  kind: "whole" | "kept" | "dropped" | "unseen";
  rank: number | null;
  score: number | null;
  scored: number;
}

export interface Row {
  level: number;
  kept: NodeName[];
  dropped: NodeName[];
  /** Nodes on the way to recommended items. */
  ways: NodeName[];
  /** What the beam did here, in words; the short form for narrow screens. */
  figure: string;
  shortFigure: string;
}

/** Levels that are kept whole are drawn up to this size, larger ones only where something was recommended. */
const WHOLE_SIZE = 4096;
const WHOLE_SIZE_WITHOUT_BEAM = 32;

export const key = ({ level, node }: NodeName): string => `${level}/${node}`;

const UNSEEN: Fate = { kind: "unseen", rank: null, score: null, scored: 0 };

export class Walk {
  readonly beam: Beam | null;
  readonly onTheWay = new Map<string, NodeName>();
  private readonly names = new Map<string, string>();
  private readonly fates = new Map<string, Fate>();
  private readonly levels = new Map<number, BeamLevel>();
  private readonly firstLevel: number;

  constructor(
    readonly tree: TreeFacts,
    readonly answer: Recommendation,
    branches: Branch[],
    readonly isFiltered: boolean,
  ) {
    for (const branch of branches) this.names.set(key(branch), branch.name);
    this.beam = answer.beam ?? null;
    for (const item of answer.items) for (const step of item.path ?? []) this.onTheWay.set(key(step), step);
    for (const level of this.beam?.levels ?? []) {
      this.levels.set(level.level, level);
      this.note(level, "kept", level.nodes, level.scores, 1);
      this.note(level, "dropped", level.dropped, level.dropped_scores, level.kept + 1);
    }
    this.firstLevel = this.beam?.levels[0]?.level ?? 0;
  }

  private note(
    { level, scored }: BeamLevel,
    kind: "kept" | "dropped",
    nodes: number[],
    scores: number[],
    firstRank: number,
  ): void {
    nodes.forEach((node, index) => {
      this.fates.set(key({ level, node }), { kind, rank: firstRank + index, score: scores[index] ?? null, scored });
    });
  }

  fateOf(place: NodeName): Fate {
    const known = this.fates.get(key(place));
    if (known || !this.beam) return known ?? UNSEEN;
    const level = this.levels.get(place.level);
    if (!level) return this.beam.exact ? UNSEEN : { ...UNSEEN, kind: "whole" };
    const areAllListed = level.kept + level.dropped.length >= level.scored;
    const wasReached =
      level.level === this.firstLevel || this.fates.get(key(parentOf(this.tree, place)))?.kind === "kept";
    return wasReached && !areAllListed ? { ...UNSEEN, kind: "dropped", scored: level.scored } : UNSEEN;
  }

  /** What is typical of the items below a branch; empty on lower levels, where branches have no names. */
  nameOf(place: NodeName): string {
    return this.names.get(key(place)) ?? "";
  }

  /** How many items the search could choose from, where it scored all of them. */
  get eligible(): number | null {
    return this.beam?.exact ? (this.beam.levels[0]?.scored ?? null) : null;
  }

  labelOf(place: NodeName): string {
    if (place.level === 0) return "The top of the tree: all items are below";
    const name = this.nameOf(place);
    const number = `Level ${place.level}, branch ${count(place.node + 1)} of ${count(this.tree.level_sizes[place.level]!)}`;
    const where = name ? `${number} (${name})` : number;
    const fate = this.fateOf(place);
    switch (fate.kind) {
      case "kept":
        return `${where}: kept, place ${fate.rank} of ${count(fate.scored)} looked at, score ${score(fate.score ?? 0)}`;
      case "dropped":
        return `${where}: looked at and dropped${placeOf(fate)}`;
      case "whole":
        return `${where}: kept, as all are on this level`;
      case "unseen":
        return where;
    }
  }

  row(level: number): Row {
    const isLeafLevel = level === this.tree.height;
    const size = this.tree.level_sizes[level]!;
    const searched = this.levels.get(level);
    const isWhole = !searched && !isLeafLevel && !this.beam?.exact;
    const drawnWhole = isWhole && size <= (this.beam ? WHOLE_SIZE : WHOLE_SIZE_WITHOUT_BEAM);
    const all = (nodes: number): NodeName[] => Array.from({ length: nodes }, (_, node) => ({ level, node }));
    const ways = level === 0 ? all(1) : [...this.onTheWay.values()].filter((step) => step.level === level);
    const kept = searched ? searched.nodes.map((node) => ({ level, node })) : drawnWhole ? all(size) : [];
    const dropped = (searched?.dropped ?? []).map((node) => ({ level, node }));
    const row = { level, ways, kept: isLeafLevel ? [] : kept, dropped: isLeafLevel ? [] : dropped };
    if (level > 0 && !this.beam) return { ...row, figure: count(size), shortFigure: count(size) };
    if (level === 0 || (!searched && !isWhole)) return { ...row, figure: "", shortFigure: "" };
    const short = searched ? `${count(searched.kept)} of ${count(searched.scored)}` : `all ${count(size)}`;
    return { ...row, figure: `${isLeafLevel ? "best" : "kept"} ${short}`, shortFigure: short };
  }
}

/** Its place among all that were looked at on its level, where the server told. */
export function placeOf({ rank, score: points, scored }: Fate): string {
  return rank === null ? "" : `, place ${rank} of ${count(scored)}, score ${score(points ?? 0)}`;
}
