// The interface of the server, from its OpenAPI document: what each address takes and answers, and a form to try it.

import { button, find, html } from "./dom";
import { type Field, type Schema, type Schemas, choicesOf, pretty, resolve, shapeOf, typeOf } from "./schema";
import { TryOut } from "./try";

export interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  example?: unknown;
  schema: Schema;
}

interface Content {
  content?: Record<string, { schema?: Schema; example?: unknown }>;
  description?: string;
}

export interface Route {
  path: string;
  method: string;
  tags?: string[];
  summary?: string;
  parameters?: Parameter[];
  requestBody?: Content;
  responses?: Record<string, Content>;
}

interface Document {
  info: { version: string; "x-model-version"?: string };
  paths: Record<string, Record<string, Route>>;
  components?: { schemas?: Schemas };
}

const MAIN_ROUTE = "/v1/recommend";
const JSON_TYPE = "application/json";

async function start(): Promise<void> {
  const main = find("routes");
  try {
    const response = await fetch("openapi.json");
    if (!response.ok) throw new Error(`status ${response.status}`);
    show((await response.json()) as Document, main);
  } catch (error) {
    const problem = html("p", { class: "docs-problem", role: "alert" }, `The description could not be loaded: ${error}`);
    main.replaceChildren(
      problem,
      button("Try again", {}, () => void start()),
    );
  }
  main.setAttribute("aria-busy", "false");
}

function show(document_: Document, main: HTMLElement): void {
  const all = document_.components?.schemas ?? {};
  const groups = new Map<string, Route[]>();
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, route] of Object.entries(methods)) {
      const group = route.tags?.[0] ?? "other";
      groups.set(group, [...(groups.get(group) ?? []), { ...route, path, method: method.toUpperCase() }]);
    }
  }
  const model = document_.info["x-model-version"];
  find("versions").textContent = `beamtree ${document_.info.version}${model ? `, model ${model}` : ""}`;
  main.replaceChildren(
    ...[...groups].map(([group, routes]) =>
      html(
        "section",
        { class: "group" },
        html("h2", {}, group),
        ...routes.map((route) => routeCard(route, all)),
      ),
    ),
  );
  find("contents").replaceChildren(
    ...[...groups].flatMap(([group, routes]) => [
      html("li", { class: "group-name" }, group),
      ...routes.map((route) => html("li", {}, html("a", { href: `#${idOf(route)}` }, badge(route.method), route.path))),
    ]),
  );
  openNamed();
}

/** Open the route that the address names, so that it can be passed on. */
function openNamed(): void {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!(named instanceof HTMLDetailsElement)) return;
  named.open = true;
  named.scrollIntoView();
}

const idOf = ({ method, path }: Route): string => `${method}${path}`.replace(/[^A-Za-z0-9]+/g, "-").toLowerCase();

const badge = (method: string): HTMLElement => html("span", { class: `method ${method.toLowerCase()}` }, method);

function routeCard(route: Route, all: Schemas): HTMLElement {
  const card = html(
    "details",
    { class: "panel route", id: idOf(route), open: route.path === MAIN_ROUTE },
    html(
      "summary",
      {},
      badge(route.method),
      html("code", {}, route.path),
      html("span", { class: "summary" }, route.summary ?? ""),
    ),
  );
  const fill = (): void => {
    if (card.children.length === 1) card.append(...contents(route, all));
  };
  if (card.open) fill();
  card.addEventListener("toggle", () => card.open && fill());
  return card;
}

function contents(route: Route, all: Schemas): Node[] {
  const body = route.requestBody?.content?.[JSON_TYPE];
  const example = body?.example === undefined ? null : pretty(body.example);
  const takes = [...parameters(route, all), ...bodies(body?.schema, all)];
  return [
    html(
      "div",
      { class: takes.length ? "request" : "" },
      new TryOut(route, body ? (example ?? "{}") : null, all).element,
      ...(takes.length ? [html("div", { class: "takes" }, ...takes)] : []),
    ),
    ...answers(route, all),
  ];
}

function parameters({ parameters: known = [] }: Route, all: Schemas): Node[] {
  if (!known.length) return [];
  const fields = known.map(
    (parameter): Field => ({
      path: parameter.name,
      depth: 0,
      type: typeOf(parameter.schema, all),
      isRequired: parameter.required ?? false,
      default: parameter.schema.default === undefined ? "" : JSON.stringify(parameter.schema.default),
      description: parameter.description ?? "",
    }),
  );
  return [html("h3", {}, "Parameters"), fieldTable(fields)];
}

/** The body, once for each form that it may have. */
function bodies(schema: Schema | undefined, all: Schemas): Node[] {
  if (!schema) return [];
  const forms = choicesOf(schema, all);
  const shown = new Set<string>();
  return forms.flatMap((form, place) => {
    const { description, fields, oneOf } = shapeOf(form, all, shown);
    shown.add(resolve(form, all).name);
    return [
      html("h3", {}, forms.length > 1 ? `Body, ${place === 0 ? "one request" : "or several at once"}` : "Body"),
      html("p", { class: "about" }, description),
      ...(oneOf.length > 1 ? [html("p", { class: "about" }, "Exactly one of these is required: ", ...codes(oneOf), ".")] : []),
      fieldTable(fields),
    ];
  });
}

const codes = (names: string[]): Node[] =>
  names.flatMap((name, place) => [
    ...(place ? [document.createTextNode(" or ")] : []),
    html("code", {}, name),
  ]);

function fieldTable(fields: Field[]): HTMLElement {
  return html(
    "dl",
    { class: "fields" },
    ...fields.map((field) => {
      const row = html(
        "div",
        {},
        html("dt", {}, html("code", {}, field.path)),
        html(
          "dd",
          {},
          html("span", { class: "type" }, field.type),
          ...(field.isRequired ? [html("span", { class: "needed" }, "required")] : []),
          ...(field.default ? [html("span", { class: "default" }, `default ${field.default}`)] : []),
          html("span", { class: "meaning" }, field.description),
        ),
      );
      row.style.setProperty("--depth", String(field.depth));
      return row;
    }),
  );
}

function answers({ responses = {} }: Route, all: Schemas): Node[] {
  const good = Object.entries(responses).filter(([status]) => status.startsWith("2"));
  const errors = Object.entries(responses).filter(([status]) => !status.startsWith("2"));
  return [
    ...good.flatMap(([status, { content }]) => {
      const schema = content?.[JSON_TYPE]?.schema;
      if (!schema) return [];
      const { description, fields } = shapeOf(schema, all);
      return [
        html(
          "details",
          { class: "answer-shape" },
          html("summary", {}, `Response (${status})`),
          html("p", { class: "about" }, description),
          fieldTable(fields),
        ),
      ];
    }),
    ...(errors.length
      ? [
          html(
            "details",
            { class: "answer-shape" },
            html("summary", {}, `Errors (${errors.map(([status]) => status).join(", ")})`),
            html(
              "p",
              { class: "about" },
              "The body is {\"error\": {\"code\": …, \"message\": …, \"details\": […]}}: code is for programs, message for people.",
            ),
            html(
              "dl",
              { class: "fields" },
              ...errors.map(([status, { description = "" }]) =>
                html("div", {}, html("dt", {}, html("code", {}, status)), html("dd", {}, description)),
              ),
            ),
          ),
        ]
      : []),
  ];
}

addEventListener("hashchange", openNamed);
void start();
