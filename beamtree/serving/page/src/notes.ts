// What an answer says about itself, where one might wonder: a wider beam than was asked for, a short list.

import type { Recommendation } from "./api";
import { count, plural } from "./words";

/** Why the search keeps more branches than the slider says; empty where it does not. */
export function widthNote({ beam }: Recommendation, asked: number): string {
  const more = (beam?.width ?? asked) - asked;
  if (!beam || beam.exact || more <= 0) return "";
  const [liked, growth] =
    more < asked
      ? [`${plural(more, "item")} that you liked`, "grows by as many"]
      : ["what you liked", "becomes twice as wide, at most"];
  return `${count(asked)} becomes ${count(beam.width)}: the list leaves out ${liked}, so the beam ${growth}.`;
}

export interface ListFacts {
  wanted: number;
  /** The filter in words, such as "category is War"; empty without one. */
  filter: string;
  excludesSeen: boolean;
}

/** Why the list is as it is, above it. */
export function listNote(answer: Recommendation, { wanted, filter, excludesSeen }: ListFacts): string {
  const found = answer.items.length;
  const beyondLiked = excludesSeen && answer.history_used > 0 ? ", apart from what you liked" : "";
  if (!found) {
    return filter
      ? `No item fits the filter “${filter}”${beyondLiked}. Choose another one.`
      : `There is no item left to recommend${beyondLiked}.`;
  }
  if (found < wanted) {
    const fits = found === 1 ? "fits" : "fit";
    const why = filter ? `${fits} the filter “${filter}”` : `${found === 1 ? "is" : "are"} in the catalogue`;
    return `Only ${plural(found, "item")} ${why}${beyondLiked}, so the list cannot be longer.`;
  }
  if (answer.source === "popularity") return "The most popular items, until you say what you liked.";
  return "Best first, with the model's score.";
}
