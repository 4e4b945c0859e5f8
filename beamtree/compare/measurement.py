"""Measurements of a fitted system: accuracy by user, properties of its lists, cost of a request."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beamtree.baselines.protocol import Index
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.evaluation.answers import Answers
from beamtree.evaluation.labels import ReachableLabels, reachable_labels
from beamtree.evaluation.metrics import Metrics, measure
from beamtree.evaluation.protocol import held_out_requests
from beamtree.model.counting import count_items
from beamtree.types import NOTHING, Float64Array, Int32Array, Int64Array

GROUPS = ("low", "middle", "high")
"""Thirds of the users by the length of their history, and of the interactions by the popularity of their item."""
TIMED_REQUESTS = 200
SWEPT_USERS = 1000
K = 20


@dataclass(frozen=True, eq=False)
class Measurement:
    """Figures of one fitted system.

    metrics: by user too; novelty: mean -log2 of the share of training interactions that a recommended item has, at
    each cutoff. by_history, by_popularity: F@20 of users and recall@20 of labels in thirds. ms_single: medians and 99th
    percentiles of requests one by one, ms_batch: per request, all together. sweep: accuracy and time by effort.
    """

    metrics: Metrics
    novelty: dict[str, float]
    by_history: dict[str, float]
    by_popularity: dict[str, float]
    ms_single: float
    ms_single_p99: float
    ms_batch: float
    index_bytes: int | None = None
    effort_name: str | None = None
    sweep: list[dict[str, float]] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Everything but what is kept by user."""
        return {
            "metrics": dict(self.metrics) | self.novelty,
            "by_history": self.by_history,
            "by_popularity": self.by_popularity,
            "ms_single": self.ms_single,
            "ms_single_p99": self.ms_single_p99,
            "ms_batch": self.ms_batch,
            "index_bytes": self.index_bytes,
            "effort_name": self.effort_name,
            "sweep": self.sweep,
        }


def measure_system(
    system: Answers, dataset: Dataset, split: Split, *, config: Config, cutoffs: Sequence[int]
) -> Measurement:
    """Measure a system on the test users, in batch and one by one."""
    reachable = reachable_labels(split.test, dataset.sequences, config=config)
    requests = held_out_requests(dataset, reachable.users, exclude_seen=reachable.excludes_seen)
    k, num_items = max(*cutoffs, K), len(dataset.items)
    started = time.perf_counter()
    recommended = system.search(requests, k=k).items
    batch_seconds = time.perf_counter() - started
    asked = tuple(sorted({*cutoffs, K}))
    metrics = measure(recommended, reachable.labels, num_items=num_items, cutoffs=asked)
    counts = count_items(dataset.sequences.items, split.train, num_items=num_items)
    singles = _single_seconds(system, requests)
    index = system if isinstance(system, Index) else None
    return Measurement(
        metrics,
        novelty={f"novelty@{cutoff}": _novelty(recommended[:, :cutoff], counts) for cutoff in asked},
        by_history=_by_history(metrics.per_user["f@20"], reachable),
        by_popularity=_by_popularity(recommended[:, :K], reachable.labels, counts),
        ms_single=1e3 * float(np.median(singles)),
        ms_single_p99=1e3 * float(np.percentile(singles, 99)),
        ms_batch=1e3 * batch_seconds / len(requests),
        index_bytes=None if index is None else index.index_bytes,
        effort_name=None if index is None else index.effort_name,
        sweep=[] if index is None else _sweep(index, requests, reachable, num_items=num_items),
    )


def _single_seconds(system: Answers, requests: Requests) -> Float64Array:
    """Seconds of requests one by one, after one that does not count."""
    system.search(requests.take(slice(0, 1)), k=K)
    seconds = []
    for row in range(min(TIMED_REQUESTS, len(requests))):
        one = requests.take(slice(row, row + 1))
        started = time.perf_counter()
        system.search(one, k=K)
        seconds.append(time.perf_counter() - started)
    return np.array(seconds)


def _sweep(index: Index, requests: Requests, reachable: ReachableLabels, *, num_items: int) -> list[dict[str, float]]:
    """Accuracy and time of an index by its effort, over the first users."""
    most = min(SWEPT_USERS, len(requests))
    items, offsets = reachable.labels
    labels = items[: offsets[most]], offsets[: most + 1]
    found = []
    for effort in sorted({*index.efforts, index.effort}):
        answers = index.with_effort(effort)
        recommended = answers.search(requests.take(slice(0, most)), k=K).items
        metrics = measure(recommended, labels, num_items=num_items, cutoffs=(K,))
        milliseconds = 1e3 * float(np.median(_single_seconds(answers, requests)))
        found.append(
            {"effort": effort, "f@20": metrics["f@20"], "ndcg@20": metrics["ndcg@20"], "ms_single": milliseconds}
        )
    return found


def _novelty(recommended: Int32Array, counts: Int64Array) -> float:
    """Mean self-information of recommended items, in bits; an item without interactions counts as having one."""
    shown = recommended[recommended != NOTHING]
    return float(-np.log2(np.maximum(counts[shown], 1) / max(counts.sum(), 1)).mean()) if len(shown) else 0.0


def _by_history(values: Float64Array, reachable: ReachableLabels) -> dict[str, float]:
    """The mean over users in thirds by the length of their history, where thirds differ."""
    lengths = reachable.users.history_end - reachable.users.history_start
    return _by_thirds(values, lengths)


def _by_popularity(
    recommended: Int32Array, labels: tuple[Int32Array, Int64Array], counts: Int64Array
) -> dict[str, float]:
    """The share of labels that were found, in thirds by the popularity of their item."""
    items, offsets = labels
    rows = np.repeat(np.arange(len(recommended)), np.diff(offsets))
    is_found = (recommended[rows] == items[:, None]).any(axis=1) & (items != NOTHING)
    return _by_thirds(is_found.astype(np.float64), np.where(items == NOTHING, 0, counts[items]))


def _by_thirds(values: Float64Array, sizes: Int64Array) -> dict[str, float]:
    bounds = np.quantile(sizes, [1 / 3, 2 / 3])
    group = np.searchsorted(bounds, sizes, side="left")
    return {
        name: float(values[group == number].mean()) for number, name in enumerate(GROUPS) if (group == number).any()
    }
