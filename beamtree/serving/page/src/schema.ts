// JSON schemas of the OpenAPI document as rows for people: a field, what it takes, its default, what it means.

export interface Schema {
  $ref?: string;
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  items?: Schema;
  prefixItems?: Schema[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  examples?: unknown[];
  minimum?: number;
  maximum?: number;
  minItems?: number;
  maxItems?: number;
  maxLength?: number;
}

export type Schemas = Record<string, Schema>;

export interface Field {
  /** As it is reached from the top, such as allow.where[].column. */
  path: string;
  depth: number;
  type: string;
  isRequired: boolean;
  /** As JSON; empty where there is none, or where it is null, a list or an object, which tell nothing at a glance. */
  default: string;
  description: string;
}

export interface Shape {
  description: string;
  fields: Field[];
  /** Fields of which exactly one must be given. */
  oneOf: string[];
}

const count = new Intl.NumberFormat("en");
/** Bounds of 64-bit integers say nothing to people. */
const HUGE = 2 ** 53;
const MOST_VALUES = 8;
const PLURALS: Record<string, string> = {
  integer: "integers",
  number: "numbers",
  text: "texts",
  boolean: "booleans",
  object: "objects",
};

const nameOf = (reference: string): string => reference.split("/").pop()!;

/** Follow references; the name is that of the last one. */
export function resolve(schema: Schema, all: Schemas): { schema: Schema; name: string } {
  let name = "";
  let at = schema;
  while (at.$ref) {
    name = nameOf(at.$ref);
    at = all[name] ?? {};
  }
  return { schema: at, name };
}

/** The choices of a schema, without null; itself where there are none. */
export function choicesOf(schema: Schema, all: Schemas): Schema[] {
  const { schema: found } = resolve(schema, all);
  const choices = found.properties ? undefined : (found.anyOf ?? found.oneOf);
  if (!choices) return found.type === "null" ? [] : [schema];
  return choices.flatMap((choice) => choicesOf(choice, all));
}

/** What a value is, in words. */
export function typeOf(schema: Schema, all: Schemas): string {
  const choices = choicesOf(schema, all);
  if (choices.length !== 1) return either(kindsOf(choices, all)) || "anything";
  const { schema: found, name } = resolve(choices[0]!, all);
  if (found.enum) return either(valuesOf(found.enum));
  if (found.const !== undefined) return JSON.stringify(found.const);
  if (found.properties) return "object";
  switch (found.type) {
    case "array":
      return listOf(found, all);
    case "string":
      return name === "ItemId" || name === "UserId" ? `${words(name)} (text)` : "text";
    case "integer":
      return name === "ItemId" || name === "UserId" ? `${words(name)} (integer)` : bounded("integer", found);
    case "number":
      return bounded("number", found);
    default:
      return found.type ?? "anything";
  }
}

const words = (name: string): string => (name === "ItemId" ? "item id" : "user id");

function listOf({ prefixItems, items = { anyOf: prefixItems ?? [] }, maxItems }: Schema, all: Schemas): string {
  const { enum: values } = resolve(items, all).schema;
  const kinds = kindsOf(choicesOf(items, all), all).map((kind) => PLURALS[kind] ?? kind.replace(/^(item|user) id/, "$1 ids"));
  const each = values ? `list of ${either(valuesOf(values))}` : `list of ${either(kinds) || "anything"}`;
  return maxItems === undefined ? each : `${each}; at most ${count.format(maxItems)}`;
}

/** Distinct kinds of values; integers are numbers. */
function kindsOf(choices: Schema[], all: Schemas): string[] {
  const kinds = [...new Set(choices.map((choice) => typeOf(choice, all)))];
  return kinds.includes("number") ? kinds.filter((kind) => kind !== "integer") : kinds;
}

function valuesOf(values: unknown[]): string[] {
  const shown = values.slice(0, MOST_VALUES).map((value) => JSON.stringify(value));
  return values.length > MOST_VALUES ? [...shown, `${count.format(values.length - MOST_VALUES)} more`] : shown;
}

function either(words: string[]): string {
  return words.length < 2 ? (words[0] ?? "") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}

function bounded(kind: string, { minimum, maximum }: Schema): string {
  const low = minimum !== undefined && Math.abs(minimum) < HUGE ? minimum : null;
  const high = maximum !== undefined && Math.abs(maximum) < HUGE && maximum !== 2 ** 31 - 1 ? maximum : null;
  if (low !== null && high !== null) return `${kind}, ${count.format(low)} to ${count.format(high)}`;
  if (low !== null) return `${kind}, at least ${count.format(low)}`;
  return high === null ? kind : `${kind}, at most ${count.format(high)}`;
}

/** The fields of an object, those of objects inside it below theirs. Objects in `shown` are not opened again. */
export function shapeOf(schema: Schema, all: Schemas, shown = new Set<string>()): Shape {
  const { schema: found, name } = resolve(schema, all);
  const inside = new Set([...shown, name]);
  return {
    description: found.description ?? "",
    fields: fieldsOf(found, all, inside, "", 0),
    oneOf: (found.oneOf ?? []).flatMap((choice) => choice.required ?? []),
  };
}

function fieldsOf(schema: Schema, all: Schemas, shown: Set<string>, prefix: string, depth: number): Field[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, part]) => {
    const path = `${prefix}${name}`;
    const isEmpty = part.default === undefined || typeof part.default === "object";
    const field: Field = {
      path,
      depth,
      type: typeOf(part, all),
      isRequired: (schema.required ?? []).includes(name),
      default: isEmpty ? "" : JSON.stringify(part.default),
      description: part.description ?? resolve(choicesOf(part, all)[0] ?? {}, all).schema.description ?? "",
    };
    return [field, ...choicesOf(part, all).flatMap((choice) => below(choice, path))];
  });

  function below(choice: Schema, path: string): Field[] {
    const { schema: found, name } = resolve(choice, all);
    if (found.type === "array" && found.items) return below(found.items, `${path}[]`);
    if (!found.properties || shown.has(name)) return [];
    return fieldsOf(found, all, new Set([...shown, name]), `${path}.`, depth + 1);
  }
}

/** JSON over several lines, with lists of plain values on one. */
export function pretty(value: unknown, indent = ""): string {
  const deeper = `${indent}  `;
  if (Array.isArray(value)) {
    if (value.every((each) => each === null || typeof each !== "object")) {
      return `[${value.map((each) => JSON.stringify(each)).join(", ")}]`;
    }
    return `[\n${value.map((each) => deeper + pretty(each, deeper)).join(",\n")}\n${indent}]`;
  }
  if (value !== null && typeof value === "object") {
    const lines = Object.entries(value).map(([name, each]) => `${deeper}${JSON.stringify(name)}: ${pretty(each, deeper)}`);
    return lines.length ? `{\n${lines.join(",\n")}\n${indent}}` : "{}";
  }
  return JSON.stringify(value) ?? "null";
}
