"""A model beside its baselines: each fitted to the same spans, asked for the same users, and judged."""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from beamtree.baselines.protocol import Budget
from beamtree.baselines.registry import Entry
from beamtree.data.dataset import Dataset
from beamtree.data.split import HeldOut, Split
from beamtree.errors import BaselineUnavailable
from beamtree.evaluation.metrics import Metrics
from beamtree.evaluation.protocol import evaluate
from beamtree.evaluation.verdict import Verdict, judge

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Comparison(Mapping[str, Metrics]):
    """Metrics by system, in the order of the table: the model first, then the baselines.

    seconds: what each baseline took to fit and to answer. left_out: why a baseline that was asked for is not there.
    verdict: the first system against the best baseline; None without any.
    """

    metrics: Mapping[str, Metrics]
    seconds: Mapping[str, float]
    left_out: Mapping[str, str]
    verdict: Verdict | None

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
) -> Comparison:
    """Fit the baselines one after another and measure them on the same users.

    model: metrics of the model itself, the one to be judged first. A baseline that is not available is left out, and
    the others go on.
    """
    measured: dict[str, Metrics] = {}
    seconds: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for name, entry in baselines.items():
        started = time.monotonic()
        try:
            fitted = entry.fit(dataset, split, budget=budget)
        except BaselineUnavailable as reason:
            log.info("%s", reason)
            left_out[name] = str(reason)
            continue
        measured[name] = evaluate(fitted, dataset, users, config=budget.config)
        seconds[name] = time.monotonic() - started
    learning = [name for name in measured if baselines[name].learns]
    first = next(iter(model.values()))
    verdict = judge(first, measured, learning=learning, config=budget.config) if measured else None
    return Comparison({**model, **measured}, seconds, left_out, verdict)
