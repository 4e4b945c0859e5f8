"""Popularity at the time of the request: counts of earlier interactions with exponential decay."""

from dataclasses import dataclass

import numpy as np

from beamtree.baselines.popularity import PopularItems, popular_items
from beamtree.baselines.protocol import Budget
from beamtree.baselines.tuning import choose
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.sequences import flatten_spans
from beamtree.data.split import Split
from beamtree.evaluation.answers import ScoredItems
from beamtree.types import Float32Array, Float64Array, Int32Array

HALF_LIVES = (1.0, 1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 1024)
"""To choose from, as shares of the time that the training spans cover."""
STAGES = 64
"""The log is counted up to this number of moments, each from the one before; a request adds the interactions since
then. So its answer does not depend on other requests."""


@dataclass(frozen=True, eq=False)
class DecayedCounts:
    """Interactions in the order of time: times float64 (n,), from 0 on; items (n,). half_life in the units of times."""

    times: Float64Array
    items: Int32Array
    num_items: int
    first_time: float
    half_life: float

    def __call__(self, requests: Requests) -> Float32Array:
        """Scores (requests, items): each interaction strictly before the request counts 2^(-age / half_life).

        Requests without a time come after everything that is known.
        """
        if requests.times is None:
            moments = np.full(len(requests), np.inf)
        else:
            moments = requests.times.astype(np.float64) - self.first_time
        before = np.searchsorted(self.times, moments, side="left")
        stage_ends = np.linspace(0, len(self.times), STAGES + 1).astype(np.int64)
        stage = np.searchsorted(stage_ends, before, side="right") - 1
        scores = np.zeros((len(requests), self.num_items), dtype=np.float32)
        counts, now = np.zeros(self.num_items), 0.0
        for number, end in enumerate(stage_ends):
            if number:
                start, then = stage_ends[number - 1], now
                now = float(self.times[end - 1]) if end else 0.0
                counts = self._later(counts, int(start), int(end), then=then, now=now)
            for row in np.flatnonzero(stage == number):
                last = float(self.times[before[row] - 1]) if before[row] else now
                scores[row] = self._later(counts, int(end), int(before[row]), then=now, now=last)
        return scores

    def _later(self, counts: Float64Array, start: int, end: int, *, then: float, now: float) -> Float64Array:
        """Counts at the moment `now` from those at `then` and the interactions from start to end in between."""
        weights = np.exp2((self.times[start:end] - now) / self.half_life)
        added = np.bincount(self.items[start:end], weights=weights, minlength=self.num_items)
        return np.asarray(counts * np.exp2((then - now) / self.half_life) + added)


class TrendPopularity:
    """Decayed popularity, its half-life chosen on validation users; plain popularity where times are only an order."""

    name = "trend-popularity"

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> ScoredItems | PopularItems:
        """As `Baseline.fit`."""
        if dataset.timestamps is None or not has_clock(dataset):
            return popular_items(dataset, split)
        places = np.arange(len(dataset.timestamps), dtype=np.int32)
        trained, _ = flatten_spans(places, starts=split.train.start, ends=split.train.end)
        trained = trained[np.argsort(dataset.timestamps[trained], kind="stable")]
        times, items = dataset.timestamps[trained].astype(np.float64), dataset.sequences.items[trained]
        first, covered = float(times[0]), float(times[-1] - times[0]) or 1.0
        num_items = len(dataset.items)

        def with_half_life(share: float) -> ScoredItems:
            counts = DecayedCounts(times - first, items, num_items, first, share * covered)
            return ScoredItems(counts, num_items=num_items)

        return choose(HALF_LIVES, with_half_life, dataset, split, name=self.name, budget=budget)


def has_clock(dataset: Dataset) -> bool:
    """Whether timestamps are moments, and not just each user's interactions numbered one by one."""
    if dataset.timestamps is None:
        return False
    steps = np.diff(dataset.timestamps)
    is_within_user = np.ones(len(steps), dtype=np.bool_)
    borders = dataset.sequences.offsets[1:-1]
    is_within_user[borders[(borders > 0) & (borders <= len(steps))] - 1] = False
    return bool((steps[is_within_user] != 1).any() and np.ptp(dataset.timestamps) > 0)
