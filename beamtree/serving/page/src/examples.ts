// Histories to start with, so that there is something to see at once.

import { type Item, kindOf } from "./api";

const LENGTH = 3;

/** Short histories out of popular items, of one category each; one of every category before the second of any. */
export function makeExamples(popular: Item[]): Item[][] {
  const ofKind = new Map<string, Item[]>();
  for (const item of popular) ofKind.set(kindOf(item), [...(ofKind.get(kindOf(item)) ?? []), item]);
  const rounds: Item[][][] = [];
  for (const items of [...ofKind.values()].sort((one, other) => other.length - one.length)) {
    for (let round = 0; (round + 1) * LENGTH <= items.length; round++) {
      (rounds[round] ??= []).push(items.slice(round * LENGTH, (round + 1) * LENGTH));
    }
  }
  const examples = rounds.flat();
  return examples.length || !popular.length ? examples : [popular.slice(0, LENGTH)];
}
