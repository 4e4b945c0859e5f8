// The page's state in the part of the address after #, so that a view can be reloaded and passed on.

import type { ItemId } from "./api";
import type { Choice } from "./filter";

export interface Saved {
  history: ItemId[] | null;
  beam: number | null;
  excludeSeen: boolean | null;
  filter: Choice | null;
}

export function readAddress(): Saved {
  const fields = new URLSearchParams(location.hash.slice(1));
  const ids = fields.getAll("item");
  const beam = Number(fields.get("beam"));
  const seen = fields.get("seen");
  const column = fields.get("column");
  return {
    history: ids.length ? ids : fields.has("empty") ? [] : null,
    beam: Number.isInteger(beam) && beam > 0 ? beam : null,
    excludeSeen: seen === null ? null : seen !== "keep",
    filter: column === null ? null : { column, value: fields.get("value") ?? "" },
  };
}

export function writeAddress(state: {
  history: ItemId[];
  beam: number;
  excludeSeen: boolean;
  filter: Choice | null;
}): void {
  const fields = new URLSearchParams();
  for (const id of state.history) fields.append("item", id);
  if (!state.history.length) fields.set("empty", "");
  fields.set("beam", String(state.beam));
  fields.set("seen", state.excludeSeen ? "leave" : "keep");
  if (state.filter) {
    fields.set("column", state.filter.column);
    fields.set("value", state.filter.value);
  }
  history.replaceState(null, "", `#${fields}`);
}
