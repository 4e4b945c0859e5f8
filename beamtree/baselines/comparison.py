"""A model beside its baselines: fitted on the same spans, evaluated on the same users, with a verdict."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from beamtree.baselines.protocol import Budget
from beamtree.baselines.registry import Entry
from beamtree.data.dataset import Dataset
from beamtree.data.split import HeldOut, Split
from beamtree.errors import BaselineUnavailable
from beamtree.evaluation.metrics import Metrics
from beamtree.evaluation.protocol import CUTOFFS, evaluate
from beamtree.evaluation.verdict import Verdict, judge, verdict_metric

log = logging.getLogger(__name__)

SHOWN = ("recall", "f", "ndcg")
CELL = 11


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Mapping[str, Metrics]):
    """Metrics by system, in the order of the table: the model by beam search ("beam") and by exact scan ("exact"), then
    the baselines by their names.

    seconds: fit and evaluation time of each baseline. left_out: why a baseline is missing and how to get it.
    verdict: the first system against the best baseline; None without any. beam: how wide the model's was.
    """

    metrics: Mapping[str, Metrics]
    seconds: Mapping[str, float]
    left_out: Mapping[str, str]
    verdict: Verdict | None
    beam: int | None = None

    def labelled(self) -> dict[str, Metrics]:
        """The metrics by display name: the model's rows are named by their search."""
        labels = {"beam": f"beam search ({self.beam})", "exact": "exact scan"}
        return {labels.get(name, name): metrics for name, metrics in self.metrics.items()}

    def to_frame(self) -> pl.DataFrame:
        """One row per system: its name as `system`, and a column for each metric."""
        return pl.DataFrame([{"system": name, **metrics} for name, metrics in self.metrics.items()])

    def __repr__(self) -> str:
        shown = [name for name in next(iter(self.metrics.values())) if name.split("@")[0] in SHOWN]
        first = max(map(len, self.metrics))
        rows = [f"{'':{first}}" + "".join(f"{name:>{CELL}}" for name in shown)]
        for system, metrics in self.metrics.items():
            rows.append(f"{system:{first}}" + "".join(f"{metrics[name]:{CELL}.4f}" for name in shown))
        return "\n".join(rows if self.verdict is None else [*rows, self.verdict.line()])

    def __getitem__(self, name: str) -> Metrics:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)


def compare(
    model: Mapping[str, Metrics],
    baselines: Mapping[str, Entry],
    dataset: Dataset,
    split: Split,
    *,
    users: HeldOut,
    budget: Budget,
    cutoffs: Sequence[int] = CUTOFFS,
    left_out: Mapping[str, str] | None = None,
    beam: int | None = None,
) -> Comparison:
    """Fit the baselines one after another and measure them on the same users.

    model: metrics of the model itself, the one to be judged first. A baseline that is not available is left
    out. left_out: why others are not among the baselines.
    """
    measured: dict[str, Metrics] = {}
    seconds: dict[str, float] = {}
    absent = dict(left_out or {})
    for name, entry in baselines.items():
        started = time.monotonic()
        try:
            fitted = entry.fit(dataset, split, budget=budget)
        except BaselineUnavailable as reason:
            log.info("%s", reason)
            absent[name] = str(reason)
            continue
        measured[name] = evaluate(fitted, dataset, users, config=budget.config, cutoffs=cutoffs)
        seconds[name] = time.monotonic() - started
    learning = [name for name in measured if baselines[name].learns]
    first = next(iter(model.values()))
    verdict = None
    if measured:
        verdict = judge(first, measured, learning=learning, config=budget.config, metric=verdict_metric(cutoffs))
    return Comparison({**model, **measured}, seconds, absent, verdict, beam)
