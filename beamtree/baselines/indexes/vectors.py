"""What an index is built over: a vector for each item, and a query vector for each request."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Histories, Requests
from beamtree.data.split import Split
from beamtree.types import Float32Array


class VectorSource(Protocol):
    """Scores an item by the inner product of its vector with the query of a request."""

    @property
    def item_vectors(self) -> Float32Array:
        """(items, size), contiguous."""
        ...

    def queries(self, requests: Requests) -> Float32Array:
        """(requests, size), contiguous; filters are not looked at."""
        ...


class MakeVectors(Protocol):
    """Learns a vector source from the training spans alone, or finds it again in the budget's directory."""

    def __call__(self, dataset: Dataset, split: Split, *, budget: Budget) -> VectorSource:
        """InterruptedTraining when asked to stop."""
        ...


TrainingQueries = Callable[[int], Float32Array]
"""Gives up to so many query vectors (queries, size) of training histories."""


def training_queries(source: VectorSource, dataset: Dataset, split: Split, *, seed: int) -> TrainingQueries:
    """Queries of a seeded sample of histories: every cut of a training span after its first item is as likely."""
    spans = split.train
    cuts_before = np.concatenate([[0], np.cumsum(np.maximum(spans.end - spans.start, 0))])

    def draw(count: int) -> Float32Array:
        generator = np.random.default_rng((seed, 19))
        total = int(cuts_before[-1])
        cuts = np.sort(generator.choice(total, size=min(count, total), replace=False))
        span = np.searchsorted(cuts_before, cuts, side="right") - 1
        start = spans.start[span]
        end = start + 1 + cuts - cuts_before[span]
        return source.queries(Requests(Histories(dataset.sequences.items, start, end)))

    return draw
