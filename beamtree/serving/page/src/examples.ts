// Histories to start with, so that there is something to see at once.

import type { Item } from "./api";

const LENGTH = 3;

/** Short histories out of popular items: of one category each where there are categories, most common first. */
export function makeExamples(popular: Item[]): Item[][] {
  const groups = new Map<string, Item[]>();
  for (const item of popular) {
    const category = item.columns.category ?? "";
    groups.set(category, [...(groups.get(category) ?? []), item]);
  }
  const pools = groups.size > 1 ? [...groups.values()].sort((one, other) => other.length - one.length) : [popular];
  const examples: Item[][] = [];
  for (const pool of pools) {
    for (let start = 0; start + LENGTH <= pool.length; start += LENGTH) examples.push(pool.slice(start, start + LENGTH));
  }
  // One of each category before the second of any.
  const turn = (example: Item[]): number => examples.filter((other) => other[0]!.columns.category === example[0]!.columns.category).indexOf(example);
  const ordered = groups.size > 1 ? [...examples].sort((one, other) => turn(one) - turn(other)) : examples;
  return ordered.length ? ordered : popular.length ? [popular.slice(0, LENGTH)] : [];
}
