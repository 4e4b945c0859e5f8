"""From results to one row per system: means over seeds, intervals over users, the distance to the best."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from beamtree.compare.folds import join_folds
from beamtree.compare.systems import SYSTEMS
from beamtree.evaluation.intervals import Interval, difference, relative_difference

METRIC = "f@20"
Result = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Row:
    """One system. results: one for each seed. interval: of METRIC, the mean over seeds, over users.

    behind: relative difference to the best system, -0.03 = 3 % behind; None for the best one itself, and if the best
    has no hits or other users.
    """

    name: str
    family: str
    results: Sequence[Result]
    interval: Interval
    behind: Interval | None

    def mean(self, *path: str) -> float | None:
        """The mean over seeds of a figure, by its place in a result; None where there is none."""
        values = [_at(result, path) for result in self.results]
        return None if any(value is None for value in values) else float(np.mean(values))

    def metric(self, name: str) -> float:
        """The mean over seeds of a metric."""
        return float(np.mean([result["metrics"][name] for result in self.results]))

    def spread(self, name: str) -> float | None:
        """The standard deviation over seeds; None for one seed."""
        values = [result["metrics"][name] for result in self.results]
        return float(np.std(values, ddof=1)) if len(values) > 1 else None


@dataclass(frozen=True, eq=False)
class Summary:
    """rows: best first by METRIC. left_out, failed: reasons by system."""

    rows: Sequence[Row]
    left_out: dict[str, str]
    failed: dict[str, str]

    @property
    def cutoffs(self) -> list[int]:
        """Cutoffs that all results have, ascending."""
        names = self.rows[0].results[0]["metrics"] if self.rows else {}
        return sorted(int(name.partition("@")[2]) for name in names if name.startswith("f@"))


def summarise(results: Sequence[Result]) -> Summary:
    """One row per system that was measured, with all its folds joined."""
    repeated: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        repeated.setdefault((name_of(result), result["seed"]), []).append(result)
    measured: dict[str, list[Result]] = {}
    for (name, _), folds in repeated.items():
        if all("metrics" in result for result in folds):
            measured.setdefault(name, []).append(join_folds(folds))
    per_user = {
        name: np.mean([result["per_user"][METRIC] for result in found], axis=0) for name, found in measured.items()
    }
    order = sorted(per_user, key=lambda name: -per_user[name].mean())
    rows = []
    for name in order:
        best = per_user[order[0]]
        seed = zlib.crc32(name.encode())
        rows.append(
            Row(
                name,
                family_of(measured[name][0]),
                measured[name],
                interval=difference(per_user[name], np.zeros_like(per_user[name]), seed=seed),
                behind=None
                if name == order[0] or not best.any() or per_user[name].shape != best.shape
                else relative_difference(per_user[name], best, seed=seed),
            )
        )
    return Summary(rows, _reasons(results, "left_out"), _reasons(results, "failed"))


def name_of(result: Result) -> str:
    """The display name of a result: its system, or the label of its variant."""
    return str(result.get("label", result["system"]))


def family_of(result: Result) -> str:
    """The family of its system."""
    return str(result["family"]) if "family" in result else SYSTEMS[result["system"]].family


def table(summary: Summary) -> pl.DataFrame:
    """Everything as a table, one row for each system and seed."""
    rows = [
        {
            "system": row.name,
            "family": row.family,
            "seed": result["seed"],
            **result["metrics"],
            **{f"{METRIC}, {group} history": value for group, value in result["by_history"].items()},
            **{f"recall@20, {group} popularity": value for group, value in result["by_popularity"].items()},
            **{name: result[name] for name in COSTS},
        }
        for row in summary.rows
        for result in row.results
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


COSTS = (
    "fit_seconds",
    "cpu_seconds",
    "steps",
    "ms_single",
    "ms_single_p99",
    "ms_batch",
    "index_bytes",
    "peak_memory_mb",
    "users",
)


def sweeps(summary: Summary) -> pl.DataFrame:
    """Accuracy and time of every index by its effort."""
    rows = [
        {"system": row.name, "seed": result["seed"], "knob": result["effort_name"], **point}
        for row in summary.rows
        for result in row.results
        for point in result["sweep"]
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def _reasons(results: Sequence[Result], kind: str) -> dict[str, str]:
    return {name_of(result): result[kind] for result in results if kind in result}


def _at(result: Result, path: Sequence[str]) -> Any:
    found: Any = result
    for name in path:
        found = None if found is None else found.get(name)
    return found
