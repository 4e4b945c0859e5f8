"""Does the encoder gain from item features? Fit a preset with and without them on the same log, split and seed.

    python -m experiments.features ml-1m complete-journey amazon-8cat --seeds 0 1 2
    python -m experiments.features complete-journey --items prices.parquet
    python -m experiments.features --table

The item table is the log's items.parquet; where titles end in a year, as in "Heat (1995)", the year is one more
column. A line has the metrics of both fits on the test users, over all labels and over the labels that few or no
training rows mention, and the ratio of the fit with features to the one without, with its 95 % interval (paired
bootstrap over users; it does not cover the seed). A line that is there already is not measured again.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from beamtree.config import Config
from beamtree.data.columns import TITLE
from beamtree.data.dataset import Dataset
from beamtree.data.interactions import read_log
from beamtree.data.items import read_items
from beamtree.data.prepare import prepare_log
from beamtree.data.split import Split
from beamtree.errors import InputError
from beamtree.evaluation.answers import BeamSearch
from beamtree.evaluation.intervals import relative_difference
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.metrics import measure as measure_lists
from beamtree.evaluation.protocol import held_out_requests, split_dataset
from beamtree.fitting.estimator import item_features
from beamtree.model.counting import Counts, count_items
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.types import BoolArray, Float64Array
from experiments.lines import Line, append_lines, read_lines, table
from experiments.rivals import METRICS, ROOT, commit, data_folder, kept_encoders, timed_fit

CUTOFF = 20
FEW = 10
"""Up to this many training interactions an item counts as rare."""
YEAR_AT_THE_END = r"\((\d{4})\)\s*$"
SWITCH = "estimator.item_features"
WITHOUT, WITH = "without", "with"
GROUPS = {"all": "all items", "rare": f"1 to {FEW} training interactions", "cold": "no training interaction"}
PerUser = dict[str, dict[str, Float64Array]]
"""Metrics of each user, by group of labels and name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for and has no line yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help="logs: folders of the data folder with interactions and items")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--preset", default="default", help="settings to begin with")
    parser.add_argument("--set", dest="assignments", action="append", default=[], help="section.key=value")
    parser.add_argument("--items", help="item table to use instead of the log's items.parquet")
    parser.add_argument("--encoders", type=Path, help="a folder of trained encoders, which fits of a seed then share")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "features.jsonl")
    parser.add_argument("--table", action="store_true", help="print the lines that are there as a table")
    given = parser.parse_args(arguments)
    for data in given.data:
        for seed in given.seeds:
            key = {
                "data": data,
                "preset": given.preset,
                "items": Path(given.items or "items.parquet").name,
                "seed": seed,
            }
            if any(key.items() <= line.items() for line in read_lines(given.out)):
                print(f"{key} is measured already", file=sys.stderr)
                continue
            measured = measure(data, key, assignments=given.assignments, items=given.items, encoders=given.encoders)
            append_lines(given.out, [measured])
            print(as_table([measured]), flush=True)
    if given.table:
        print(as_table(read_lines(given.out)))
    return 0


def measure(
    data: str, key: Mapping[str, Any], *, assignments: Sequence[str], items: str | None, encoders: Path | None = None
) -> Line:
    """Fit with and without item features and ask both the same; InputError where the item table has no features."""
    settings = [f"training.seed={key['seed']}", "data.split_seed=0", *assignments]
    config = Config.load(preset=key["preset"], assignments=[*settings, f"{SWITCH}=false"])
    folder = data_folder() / data
    item_table = with_year(read_items(items or str(folder / "items.parquet")))
    prepared = prepare_log(read_log(str(folder / "interactions.parquet"), config.log), config=config, items=item_table)
    dataset, plain = prepared.dataset, prepared.config
    featured = plain.model_copy(update={"estimator": plain.estimator.model_copy(update={"item_features": True})})
    schema, _ = item_features(dataset, config=featured)
    if not schema:
        raise InputError(f"The item table of {data} has no column that can be a feature; it has {item_table.columns}.")
    split = split_dataset(dataset, config=plain)
    found: dict[str, PerUser] = {}
    seconds: dict[str, float] = {}
    training: dict[str, Any] = {}
    for name, of_fit in ((WITHOUT, plain), (WITH, featured)):
        with kept_encoders(encoders) as kept:
            found[name], seconds[name], training[name] = _measure_fit(dataset, split, config=of_fit, encoders=kept)
    return {
        **key,
        "features": [column.described() for column in schema.columns],
        "users": {group: len(next(iter(found[WITH][group].values()))) for group in found[WITH]},
        "metrics": {
            name: {
                group: {metric: round(float(values.mean()), 5) for metric, values in of_group.items()}
                for group, of_group in of_fit.items()
            }
            for name, of_fit in found.items()
        },
        "ratios": {
            group: {
                metric: [
                    round(1 + bound, 4) for bound in relative_difference(found[WITH][group][metric], values, seed=0)
                ]
                for metric, values in of_group.items()
                if values.any()
            }
            for group, of_group in found[WITHOUT].items()
        },
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "weighing": training,
        "commit": commit(),
        "settings": plain.model_dump(mode="json"),
    }


def with_year(items: pl.DataFrame) -> pl.DataFrame:
    """The item table with a column year where most titles end in one."""
    if TITLE not in items.columns:
        return items
    year = items[TITLE].str.extract(YEAR_AT_THE_END).cast(pl.Int64).alias("year")
    is_usual = year.null_count() < items.height / 2 and "year" not in items.columns
    return items.with_columns(year) if is_usual else items


def _measure_fit(dataset: Dataset, split: Split, *, config: Config, encoders: Path) -> tuple[PerUser, float, Any]:
    """Metrics of each test user by group of labels, seconds of the fit, and how the parts were weighed."""
    artefact, seconds = timed_fit(dataset, split, config=config, encoders=encoders)
    engine = Engine(build_scorer(artefact.weights, artefact.tree, config=config), artefact.tree)
    counts = count_items(dataset.sequences.items, split.train, num_items=len(dataset.items), weights=None)
    per_user = _per_user(BeamSearch(engine, config.retrieval.beam_width), dataset, split, counts=counts, config=config)
    return per_user, seconds, artefact.training.get("weighing")


def _per_user(system: BeamSearch, dataset: Dataset, split: Split, *, counts: Counts, config: Config) -> PerUser:
    """Ask for all test users once; their metrics by group, for those with a label in it, groups without one left out.

    counts: (items,), training interactions.
    """
    reachable = reachable_labels(split.test, dataset.sequences, config=config)
    requests = held_out_requests(dataset, reachable.users, exclude_seen=reachable.excludes_seen)
    recommended = system.search(requests, k=CUTOFF).items
    labels, offsets = reachable.labels
    rows = np.repeat(np.arange(len(recommended)), np.diff(offsets))
    found: PerUser = {}
    for group, mask in _groups(counts[labels]).items():
        num_labels = np.bincount(rows[mask], minlength=len(recommended))
        asked = num_labels > 0
        if not asked.any():
            continue
        group_offsets = np.concatenate([[0], np.cumsum(num_labels[asked])])
        measured = measure_lists(
            recommended[asked], (labels[mask], group_offsets), num_items=len(dataset.items), cutoffs=(CUTOFF,)
        )
        found[group] = {metric: measured.per_user[metric] for metric in METRICS}
    return found


def _groups(counts: Counts) -> dict[str, BoolArray]:
    """Which labels are in each group, by the training interactions of their items (labels,)."""
    return {"all": counts >= 0, "rare": (counts > 0) & (counts <= FEW), "cold": counts == 0}


def as_table(lines: Sequence[Line]) -> str:
    """One row for each log and group of labels, means over seeds, those of the ends of intervals too."""
    rows = []
    measured = sorted({(line["data"], line["preset"], line["items"]) for line in lines})
    for data, preset, items in measured:
        own = [line for line in lines if (line["data"], line["preset"], line["items"]) == (data, preset, items)]
        for group in GROUPS:
            of_group = [line for line in own if group in line["users"]]
            if not of_group:
                continue
            columns = ", ".join(own[0]["features"])
            row = [data, columns, GROUPS[group], str(len(of_group)), str(of_group[0]["users"][group])]
            for metric in METRICS:
                for name in (WITHOUT, WITH):
                    values = [line["metrics"][name][group][metric] for line in of_group]
                    row.append(f"{np.mean(values):.4f}")
                ratios = [line["ratios"][group][metric] for line in of_group if metric in line["ratios"][group]]
                mean, low, high = np.mean(ratios, axis=0) if ratios else (np.nan,) * 3
                row.append(f"{mean:.3f} [{low:.3f}, {high:.3f}]" if ratios else "")
            rows.append(row)
    of_metrics = [
        head for metric in ("F@20", "NDCG@20") for head in (f"{metric} without", f"{metric} with", f"ratio of {metric}")
    ]
    return table(["log", "features", "labels", "seeds", "users", *of_metrics], rows)


if __name__ == "__main__":
    sys.exit(main())
