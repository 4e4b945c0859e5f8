"""Ratios between systems: ours over each other one, and the paper's ranking of trees."""

import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from beamtree.compare.summary import METRIC, Row, Summary
from beamtree.diagnostics.section import Table
from beamtree.evaluation.intervals import Interval, relative_difference
from beamtree.types import Float64Array

OURS = "beamtree"
ORDER = ("dtr-t-rl", "dtr-t", "dtr-u", "otm", "jtm", "tdm", "plt")
"""Trees as the paper ranks them, best first."""
RATIO_METRICS = ("f@20", "ndcg@20")


def ratio(row: Row, other: Row, *, metric: str = METRIC) -> Interval | None:
    """The metric of a row over that of another, with its paired interval over users; means over seeds.

    None if the users differ, or the other one has no hits.
    """
    values, others = _per_user(row, metric), _per_user(other, metric)
    if values is None or others is None or values.shape != others.shape or not others.any():
        return None
    seed = zlib.crc32(f"{row.name} {other.name}".encode())
    found = relative_difference(values, others, seed=seed)
    return Interval(*(1.0 + bound for bound in found))


def ours_over_others(summary: Summary) -> Table | None:
    """Ratios of ours to each other system, best first; None where ours was not measured."""
    own = next((row for row in summary.rows if row.name == OURS), None)
    others = [row for row in summary.rows if row.name != OURS]
    if own is None or not others:
        return None
    rows = []
    for other in others:
        found = [ratio(own, other, metric=metric) for metric in RATIO_METRICS]
        rows.append((other.name, other.family, *map(shown, found), verdict(found[0])))
    return Table(("system", "family", f"{OURS} over it, F@20", "NDCG@20", f"{OURS} is"), tuple(rows), (0, 1, 4))


def order_among_trees(summary: Summary) -> Table | None:
    """Whether the paper's ranking holds between measured neighbours; None if fewer than two were measured."""
    by_name = {row.name: row for row in summary.rows}
    present = [by_name[name] for name in ORDER if name in by_name]
    if len(present) < 2:
        return None
    rows = []
    for better, worse in pairwise(present):
        found = ratio(better, worse)
        rows.append((f"{better.name} > {worse.name}", shown(found), _seeds_ahead(better, worse), _holds(found)))
    return Table(("the paper's ranking", "ratio of F@20", "seeds ahead", "here"), tuple(rows), (0, 3))


def order_sentence(summary: Summary) -> str:
    """Which parts of the paper's ranking hold, as a sentence."""
    found = order_among_trees(summary)
    if found is None:
        return ""
    kinds = {"hold": "holds", "are the other way round": "the other way round", "cannot be told": "cannot be told"}
    of_kind = {said: [row[0] for row in found.rows if row[3] == kind] for said, kind in kinds.items()}
    told = [f"{len(rows)} {said} ({', '.join(rows)})" for said, rows in of_kind.items() if rows]
    return f"Of the {len(found.rows)} neighbours in the paper's order that were measured: {'; '.join(told)}."


def verdict(found: Interval | None) -> str:
    """Ahead, level or behind, intervals included."""
    if found is None:
        return ""
    if found.low > 1.0:
        return "ahead"
    return "behind" if found.high < 1.0 else "level"


def shown(found: Interval | None) -> str:
    """A ratio with its interval."""
    return "" if found is None else f"{found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _holds(found: Interval | None) -> str:
    return {"ahead": "holds", "behind": "the other way round", "level": "cannot be told"}.get(verdict(found), "")


def _seeds_ahead(better: Row, worse: Row) -> str:
    """The number of shared seeds for which the first one is ahead."""
    first, second = ({result["seed"]: result["metrics"][METRIC] for result in row.results} for row in (better, worse))
    shared = sorted(first.keys() & second.keys())
    return f"{sum(first[seed] > second[seed] for seed in shared)} of {len(shared)}"


def _per_user(row: Row, metric: str) -> Float64Array | None:
    values: Sequence[Sequence[float]] = [result["per_user"].get(metric, ()) for result in row.results]
    if any(not len(of_seed) or len(of_seed) != len(values[0]) for of_seed in values):
        return None
    return np.asarray(np.mean(values, axis=0), dtype=np.float64)
