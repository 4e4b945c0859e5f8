// Which items may come back: one condition on one column of the item table.

import type { Column, Condition, Model } from "./api";
import { debounced, find, html } from "./dom";
import { count } from "./words";

const HIDDEN_COLUMNS = new Set(["item_id", "title"]);

/** A choice as it is kept in the address. */
export interface Choice {
  column: string;
  value: string;
}

export class Filter {
  private readonly columnSelect = find<HTMLSelectElement>("filter-column");
  private readonly valueSelect = find<HTMLSelectElement>("filter-value");
  private readonly textInput = find<HTMLInputElement>("filter-text");
  private columns: Column[] = [];

  constructor(changed: () => void) {
    const changedSoon = debounced(changed, 200);
    this.columnSelect.addEventListener("change", () => {
      this.showValues("");
      changed();
    });
    this.valueSelect.addEventListener("change", changed);
    this.textInput.addEventListener("input", () => changedSoon());
  }

  /** Offer what this model's item table has, category first. */
  offer(model: Model, choice: Choice | null): void {
    const usable = model.columns.filter(
      ({ name, type, values }) =>
        !HIDDEN_COLUMNS.has(name) && (values ? values.length > 1 : type === "text" || type === "list"),
    );
    this.columns = usable.sort((one, other) => Number(other.name === "category") - Number(one.name === "category"));
    find("filter").hidden = this.columns.length === 0;
    this.columnSelect.hidden = this.columns.length < 2;
    find("filter-label").textContent =
      this.columns.length === 1 ? `Only where ${this.columns[0]!.name} is` : "Only where";
    this.columnSelect.replaceChildren(
      ...this.columns.map(({ name }, index) => html("option", { value: index }, name.replaceAll("_", " "))),
    );
    const chosen = this.columns.findIndex(({ name }) => name === choice?.column);
    this.columnSelect.value = String(Math.max(0, chosen));
    this.showValues(chosen < 0 ? "" : (choice?.value ?? ""));
  }

  get choice(): Choice | null {
    const column = this.column;
    const value = column?.values ? this.valueSelect.value : this.textInput.value.trim();
    return column && value ? { column: column.name, value } : null;
  }

  /** The choice as people say it; empty for none. */
  get words(): string {
    const { choice } = this;
    if (!choice) return "";
    return `${choice.column.replaceAll("_", " ")} ${this.column?.values ? "is" : "contains"} ${choice.value}`;
  }

  get condition(): Condition | null {
    const column = this.column;
    const choice = this.choice;
    if (!column || !choice) return null;
    if (!column.values) return { column: column.name, contains: choice.value };
    const known = column.values.find(({ value }) => String(value) === choice.value);
    return known ? { column: column.name, one_of: [known.value] } : null;
  }

  private get column(): Column | undefined {
    return this.columns[Number(this.columnSelect.value)];
  }

  private showValues(value: string): void {
    const values = this.column?.values ?? null;
    this.valueSelect.hidden = values === null;
    this.textInput.hidden = values !== null;
    this.textInput.value = values === null ? value : "";
    this.valueSelect.replaceChildren(
      html("option", { value: "" }, "anything"),
      ...(values ?? []).map((known) =>
        html("option", { value: String(known.value) }, `${known.value} (${count(known.count)})`),
      ),
    );
    if (values?.some((known) => String(known.value) === value)) this.valueSelect.value = value;
  }
}
