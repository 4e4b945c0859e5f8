"""Accuracy beside simple baselines, with confidence intervals."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from beamtree.config import Config
from beamtree.diagnostics.averages import Bounded
from beamtree.diagnostics.ranked_lists import CUTOFF, MODEL, RankedLists
from beamtree.evaluation.metrics import Metrics, measure
from beamtree.evaluation.verdict import judge

METRICS = ("f", "recall", "ndcg", "hit_rate")


@dataclass(frozen=True)
class SystemAccuracy:
    """One system. metrics: f, recall, ndcg and hit_rate at 20.

    lead: F@20 of the model minus that of this system, user by user; None for the model itself.
    """

    name: str
    metrics: Mapping[str, Bounded]
    lead: Bounded | None


@dataclass(frozen=True)
class Accuracy:
    """The model first, then its baselines. verdict: a sentence on the model against the best of them."""

    users: int
    systems: tuple[SystemAccuracy, ...]
    verdict: str | None
    left_out: Mapping[str, str]

    @property
    def model(self) -> SystemAccuracy:
        """The model itself."""
        return self.systems[0]

    @property
    def best_baseline(self) -> SystemAccuracy | None:
        """The baseline with the highest F@20; None where there is none."""
        return max(self.systems[1:], key=lambda system: system.metrics["f"].mean, default=None)


def measure_accuracy(ranked: RankedLists, *, num_items: int, config: Config, seed: int) -> Accuracy:
    """Metrics of every system; the seed decides the resamples of the bootstrap."""
    measured = {
        name: measure(items, ranked.labels, num_items=num_items, cutoffs=(CUTOFF,))
        for name, items in ranked.lists.items()
    }
    model = measured[MODEL]
    baselines = {name: metrics for name, metrics in measured.items() if name != MODEL}
    return Accuracy(
        users=model.num_users,
        systems=tuple(_system(name, metrics, model=model, seed=seed) for name, metrics in measured.items()),
        verdict=judge(model, baselines, learning=(), config=config).line() if baselines else None,
        left_out=dict(ranked.left_out),
    )


def _system(name: str, metrics: Metrics, *, model: Metrics, seed: int) -> SystemAccuracy:
    values = {metric: metrics.per_user[f"{metric}@{CUTOFF}"] for metric in METRICS}
    lead = None
    if name != MODEL:
        lead = Bounded.difference(model.per_user[f"f@{CUTOFF}"], values["f"], seed=seed)
    bounded = {metric: Bounded.difference(each, np.zeros_like(each), seed=seed) for metric, each in values.items()}
    return SystemAccuracy(name, bounded, lead)
