// The server's interface: shapes, calls, and failures.

/** An id as text, spelled as the server spells it: 64-bit integers do not fit into a JavaScript number. */
export type ItemId = string;

export interface NodeName {
  level: number;
  node: number;
}

export interface Item {
  item_id: ItemId;
  /** Missing where no columns were asked for. */
  columns?: { title?: string | null; category?: string | null } | null;
}

export interface PathStep extends NodeName {
  score: number;
  rank: number | null;
}

/** An item of the history that speaks for a recommendation. */
export interface Evidence {
  item_id: ItemId;
  title: string | null;
  strength: number;
  /** Of the score, through which it speaks. */
  part: string;
}

export interface RecommendedItem extends Item {
  rank: number;
  score: number | null;
  path?: PathStep[];
  /** What each part of the score gave. */
  parts?: Record<string, number>;
  /** The strongest first; empty where nothing that was liked speaks for it. */
  because_of?: Evidence[];
}

export interface BeamLevel {
  level: number;
  size: number;
  scored: number;
  kept: number;
  nodes: number[];
  scores: number[];
  /** The best of those that were scored and not kept; not all where they are very many. */
  dropped: number[];
  dropped_scores: number[];
}

export interface Beam {
  width: number;
  exact: boolean;
  levels: BeamLevel[];
}

export interface Recommendation {
  items: RecommendedItem[];
  source: "beam" | "popularity";
  history_used: number;
  beam?: Beam | null;
}

export interface RecommendAnswer {
  model_version: string;
  milliseconds: { queue: number; search: number };
  results: [Recommendation];
}

export interface Value {
  value: string | number | boolean;
  count: number;
}

export interface Column {
  name: string;
  type: "text" | "number" | "list" | "boolean" | "date";
  values: Value[] | null;
}

export interface TreeFacts {
  branching: number;
  height: number;
  leaves: number;
  nodes: number;
  level_sizes: number[];
}

export interface Model {
  model_version: string;
  id_type: "integer" | "text";
  items: number;
  history_length: number;
  tree: TreeFacts;
  defaults: { beam: number; exclude_seen: boolean };
  limits: { k: number; beam: number; history: number };
  columns: Column[];
}

/** A node of an upper level; its name is what is typical of the items below, or empty. */
export interface Branch extends NodeName {
  name: string;
  items: number;
}

export interface NodeSummary extends Branch {
  sample: Item[];
  values: Value[];
}

export interface NodeAnswer extends NodeSummary {
  is_leaf: boolean;
  path: NodeName[];
  children: NodeSummary[];
}

export interface Condition {
  column: string;
  one_of?: Value["value"][];
  contains?: string;
}

export interface Question {
  history: ItemId[];
  k: number;
  beam: number;
  excludeSeen: boolean;
  condition: Condition | null;
  explain: boolean;
}

/** A failure in words for people. `status` is 0 where no answer came. */
export class Failure extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly retryAfterSeconds: number | null = null,
  ) {
    super(message);
  }
}

type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown;

/** Item ids become text exactly as they were written; all else is parsed as usual. */
const keepIds: Reviver = (key, value, context) =>
  key === "item_id" && typeof value === "number" ? (context?.source ?? String(value)) : value;

async function call<Answer>(address: string, options: RequestInit): Promise<Answer> {
  let response: Response;
  let text: string;
  try {
    response = await fetch(address, options);
    text = await response.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Failure("The server cannot be reached. It may have stopped, or the connection is down.", 0);
  }
  let answer: unknown;
  try {
    answer = JSON.parse(text, keepIds as (key: string, value: unknown) => unknown);
  } catch {
    throw new Failure(
      `The server gave an answer that this page cannot read (status ${response.status}).`,
      response.status,
    );
  }
  if (!response.ok) throw refused(response, answer);
  return answer as Answer;
}

function refused(response: Response, answer: unknown): Failure {
  const said = (answer as { error?: { message?: string } } | null)?.error?.message ?? `status ${response.status}`;
  if (response.status === 503 || response.status === 429) {
    const wait = Number(response.headers.get("Retry-After") ?? Number.NaN);
    return new Failure("The server is busy.", response.status, Number.isFinite(wait) ? Math.min(wait, 60) : 2);
  }
  if (response.status >= 500) return new Failure(`The server had a problem: ${said}`, response.status);
  return new Failure(`The server did not accept this: ${said}`, response.status);
}

const IDS_AT_A_TIME = 100;

export class Server {
  private model: Model | null = null;

  /** Columns of the item table that the page shows. */
  get shownColumns(): string[] {
    const there = new Set(this.model?.columns.map((column) => column.name));
    return ["title", "category"].filter((name) => there.has(name));
  }

  async describeModel(): Promise<Model> {
    this.model = await call<Model>("v1/model", {});
    return this.model;
  }

  findItems(text: string, limit: number, signal?: AbortSignal): Promise<{ matches: number; items: Item[] }> {
    const query = new URLSearchParams({ search: text, limit: String(limit) });
    for (const column of this.shownColumns) query.append("column", column);
    return call(`v1/items?${query}`, signal ? { signal } : {});
  }

  /** The items with these ids, in their order; null for what the model does not know. */
  async lookUp(ids: ItemId[]): Promise<(Item | null)[]> {
    const found: (Item | null)[] = [];
    for (let first = 0; first < ids.length; first += IDS_AT_A_TIME) {
      const some = ids.slice(first, first + IDS_AT_A_TIME);
      const query = new URLSearchParams(some.map((id) => ["id", id]));
      for (const column of this.shownColumns) query.append("column", column);
      const answer = await call<{ items: Item[]; unknown_ids: string[] }>(`v1/items?${query}`, {});
      const unknown = new Set(answer.unknown_ids);
      const known = answer.items.values();
      found.push(...some.map((id) => (unknown.has(id) ? null : (known.next().value ?? null))));
    }
    return found;
  }

  /** The nodes of the levels that have at most so many, from the top down. */
  async branches(perLevel: number): Promise<Branch[]> {
    return (await call<{ branches: Branch[] }>(`v1/tree/branches?per_level=${perLevel}`, {})).branches;
  }

  node(place: NodeName, signal: AbortSignal): Promise<NodeAnswer> {
    return call(`v1/tree/nodes/${place.level}/${place.node}?sample=8`, { signal });
  }

  recommend(question: Question, signal: AbortSignal): Promise<RecommendAnswer> {
    const rest = JSON.stringify({
      k: question.k,
      beam: question.beam,
      exclude_seen: question.excludeSeen,
      explain: question.explain,
      columns: this.shownColumns,
      ...(question.condition ? { allow: { where: [question.condition] } } : {}),
    });
    const body = `{"history":${this.spellIds(question.history)},${rest.slice(1)}`;
    return call("v1/recommend", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
  }

  private spellIds(ids: ItemId[]): string {
    if (this.model?.id_type !== "integer") return JSON.stringify(ids);
    return `[${ids.filter((id) => /^-?\d{1,19}$/.test(id)).join(",")}]`;
  }
}

/** What to call an item: its title, or its id where there is none. */
export function nameOf(item: Item): string {
  return item.columns?.title?.trim() || item.item_id;
}

export function kindOf(item: Item): string {
  return item.columns?.category ?? "";
}
