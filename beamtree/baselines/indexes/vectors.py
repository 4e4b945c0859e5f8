"""The vectors of an index: one for each item, and a query for each request; from DIN or SASRec."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Histories, Requests
from beamtree.data.split import Split
from beamtree.model.counting import count_items
from beamtree.types import NOTHING, Float32Array

if TYPE_CHECKING:
    from beamtree.model.next_item import NextItemModel


class VectorSource(Protocol):
    """Scores an item by the inner product of its vector with the query of a request."""

    @property
    def item_vectors(self) -> Float32Array:
        """(items, size), contiguous."""

    def queries(self, requests: Requests) -> Float32Array:
        """(requests, size), contiguous; filters are not looked at."""


class MakeVectors(Protocol):
    """Learns a vector source from the training spans alone, or finds it again in the budget's directory."""

    def __call__(self, dataset: Dataset, split: Split, *, budget: Budget) -> VectorSource:
        """InterruptedTraining when asked to stop."""


TrainingQueries = Callable[[int], Float32Array]
"""Makes up to this number of query vectors (queries, size) from training histories."""


def training_queries(source: VectorSource, dataset: Dataset, split: Split, *, seed: int) -> TrainingQueries:
    """Queries of a seeded sample of histories: uniform over all cuts of training spans after their first item."""
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


HISTORIES_AT_A_TIME = 2048


@dataclass(frozen=True, eq=False)
class MeanOfHistory:
    """The query is the mean of the vectors of the latest `history_length` items.

    without_history: (size,), the query of an empty history.
    """

    item_vectors: Float32Array
    history_length: int
    without_history: Float32Array

    def queries(self, requests: Requests) -> Float32Array:
        """As `VectorSource.queries`."""
        queries = np.empty((len(requests), self.item_vectors.shape[1]), dtype=np.float32)
        for first in range(0, len(requests), HISTORIES_AT_A_TIME):
            rows = slice(first, first + HISTORIES_AT_A_TIME)
            items = requests.histories.take(rows).latest(self.history_length)
            present = items != NOTHING
            counts = present.sum(axis=1, keepdims=True)
            sums = (self.item_vectors[items] * present[:, :, None]).sum(axis=1)
            queries[rows] = np.where(counts > 0, sums / np.maximum(counts, 1), self.without_history)
        return queries


def din_vectors(dataset: Dataset, split: Split, *, budget: Budget) -> MeanOfHistory:
    """As `MakeVectors`, the published setting: the item vectors of the baseline `din`, learned or found in the budget's
    directory. Needs torch.

    Left open by the paper and chosen here: the mean is over as many of the latest items as DIN reads, and the
    query of an empty history is the mean over all training interactions.
    """
    from beamtree.baselines.neural import din

    network = din.train(din.tuned, dataset, split, budget=budget).module
    vectors = np.ascontiguousarray(din.item_vectors(network), dtype=np.float32)
    counts = count_items(dataset.sequences.items, split.train, num_items=len(dataset.items))
    mean = counts.astype(np.float32) @ vectors / np.float32(max(1, counts.sum()))
    return MeanOfHistory(vectors, network.settings.attention_history, mean)


@dataclass(frozen=True, eq=False)
class SasRecVectors:
    """SASRec's scores are inner products, so that an exact search gives just what SASRec recommends."""

    encoder: "NextItemModel"
    item_vectors: Float32Array

    def queries(self, requests: Requests) -> Float32Array:
        """As `VectorSource.queries`."""
        return self.encoder.expectations_of(requests)


def sasrec_vectors(dataset: Dataset, split: Split, *, budget: Budget) -> SasRecVectors:
    """As `MakeVectors`: trained with the settings of the section `estimator`, as the baseline `sasrec`. Needs torch."""
    from beamtree.baselines.encoder import trained_encoder

    encoder = trained_encoder("self-attention", dataset, split, budget=budget)
    return SasRecVectors(encoder, np.ascontiguousarray(encoder.item_vectors()))
