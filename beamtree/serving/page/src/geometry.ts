// Where nodes are: the tree's arithmetic, and the horizontal axis on which it is drawn.

import type { BeamLevel, NodeName, TreeFacts } from "./api";

/** The leaves below a node: first, and the end that is left out. */
export function leafRange(tree: TreeFacts, { level, node }: NodeName): [number, number] {
  const size = tree.level_sizes[level]!;
  return [Math.ceil((node * tree.leaves) / size), Math.ceil(((node + 1) * tree.leaves) / size)];
}

export function parentOf(tree: TreeFacts, { level, node }: NodeName): NodeName {
  const above = level - 1;
  if (level < tree.height) return { level: above, node: Math.floor(node / tree.branching) };
  return { level: above, node: Math.floor((node * tree.level_sizes[above]!) / tree.leaves) };
}

/** From the root's child down to the node itself. */
export function wayTo(tree: TreeFacts, place: NodeName): NodeName[] {
  const way: NodeName[] = [];
  for (let step = place; step.level > 0; step = parentOf(tree, step)) way.unshift(step);
  return way;
}

interface Mark {
  first: number;
  end: number;
  mass: number;
}

/** A monotone map from leaf positions 0 .. leaves to 0 .. 1. */
export type Axis = (leaf: number) => number;

/**
 * An axis that gives room to where the beam went: part of the width is shared evenly by all leaves, the rest by the
 * recommended leaves and the kept nodes. It stays monotone, so that every node stays above its own children.
 */
export function makeAxis(
  tree: TreeFacts,
  recommended: number[],
  levels: BeamLevel[],
  roomForRecommended: number,
): Axis {
  const searched = levels.filter((level) => level.level < tree.height && level.nodes.length > 0);
  const roomForKept = 0.6 * (1 - roomForRecommended);
  const marks: Mark[] = recommended.map((leaf) => ({
    first: leaf,
    end: leaf + 1,
    mass: roomForRecommended / recommended.length,
  }));
  for (const level of searched) {
    for (const node of level.nodes) {
      const [first, end] = leafRange(tree, { level: level.level, node });
      marks.push({ first, end, mass: roomForKept / searched.length / level.nodes.length });
    }
  }
  marks.push({ first: 0, end: tree.leaves, mass: 1 - roomForRecommended - roomForKept });

  const change = new Map<number, number>();
  for (const { first, end, mass } of marks) {
    const density = mass / (end - first);
    change.set(first, (change.get(first) ?? 0) + density);
    change.set(end, (change.get(end) ?? 0) - density);
  }
  const bounds = [...change.keys()].sort((left, right) => left - right);
  const reached = [0];
  let density = 0;
  for (let index = 1; index < bounds.length; index++) {
    density += change.get(bounds[index - 1]!)!;
    reached.push(reached[index - 1]! + density * (bounds[index]! - bounds[index - 1]!));
  }
  const total = reached[reached.length - 1]!;
  return (leaf) => {
    let low = 0;
    let high = bounds.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (bounds[middle]! <= leaf) low = middle;
      else high = middle;
    }
    const share = (leaf - bounds[low]!) / (bounds[high]! - bounds[low]!);
    return (reached[low]! + share * (reached[high]! - reached[low]!)) / total;
  };
}
