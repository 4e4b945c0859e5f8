"""Lines of a fit with item features beside one without, and their table, with labels of rare and cold items apart."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from beamtree.compare.ratios import ratio
from beamtree.compare.summary import Result, summarise
from beamtree.data.columns import TITLE
from beamtree.data.features import FeatureSchema
from beamtree.data.items import read_items
from beamtree.errors import InputError
from experiments.baselines import seconds_of
from experiments.lines import METRICS, Line, ratio_cell, table, with_users
from experiments.systems import FEW

WITHOUT, WITH = "without", "with"
GROUPS = {"all": "all items", "rare": f"1 to {FEW} training interactions", "cold": "no training interaction"}


def line_of(key: Mapping[str, Any], results: Sequence[Result]) -> Line:
    """The line of both fits of one seed, by group of labels; groups that no test user has a label in are left out."""
    fits = {row.name: row.results[0] for row in summarise(results).rows}
    line: Line = {**key, "features": fits[WITH]["findings"]["features"], "users": {}, "metrics": {}, "ratios": {}}
    for group in GROUPS:
        found = {name: result["findings"].get(group, result).get("per_user") for name, result in fits.items()}
        if not found[WITH]:
            continue
        rows = {row.name: row for row in summarise([with_users(fits[n], found[n], label=n) for n in found]).rows}
        line["users"][group] = len(found[WITH]["f@20"])
        for name in (WITHOUT, WITH):
            of_fit = line["metrics"].setdefault(name, {})
            of_fit[group] = {metric: round(rows[name].metric(metric), 5) for metric in METRICS}
        ratios = {metric: ratio(rows[WITH], rows[WITHOUT], metric=metric) for metric in METRICS}
        line["ratios"][group] = {metric: [round(one, 4) for one in found] for metric, found in ratios.items() if found}
    line["seconds"] = {name: round(seconds_of(result), 1) for name, result in fits.items()}
    return line | {"weighing": {name: result["findings"].get("weighing") for name, result in fits.items()}}


def prepare_items(items: Path, out: Path) -> Path:
    """The item table with years from titles, in a folder; InputError where no column of it can be a feature."""
    table = with_year(read_items(str(items)))
    if not FeatureSchema.infer(table):
        raise InputError(f"{items} has no column that can be a feature; it has {', '.join(table.columns)}.")
    out.mkdir(parents=True, exist_ok=True)
    table.write_parquet(out / "items.parquet")
    return out / "items.parquet"


def with_year(items: pl.DataFrame) -> pl.DataFrame:
    """The item table with a column year where most titles end in one, as in "Heat (1995)"."""
    if TITLE not in items.columns or "year" in items.columns:
        return items
    year = items[TITLE].str.extract(r"\((\d{4})\)\s*$").cast(pl.Int64).alias("year")
    return items.with_columns(year) if year.null_count() < items.height / 2 else items


def tables(lines: Sequence[Line]) -> str:
    """One row for each log and group of labels, means over seeds."""
    rows = []
    for data, preset, items in sorted({(line["data"], line["preset"], line["items"]) for line in lines}):
        own = [line for line in lines if (line["data"], line["preset"], line["items"]) == (data, preset, items)]
        for group, said in GROUPS.items():
            of_group = [line for line in own if group in line["users"]]
            if not of_group:
                continue
            row = [data, ", ".join(own[0]["features"]), said, str(len(of_group)), str(of_group[0]["users"][group])]
            for metric in METRICS:
                values = [[line["metrics"][name][group][metric] for line in of_group] for name in (WITHOUT, WITH)]
                ratios = [line["ratios"][group][metric] for line in of_group if metric in line["ratios"][group]]
                row += [*(f"{np.mean(some):.4f}" for some in values), ratio_cell(ratios)]
            rows.append(row)
    header = [f"{metric} without|{metric} with|ratio of {metric}" for metric in ("F@20", "NDCG@20")]
    return table("|".join(["log|features|labels|seeds|users", *header]).split("|"), rows)
