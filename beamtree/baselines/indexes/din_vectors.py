"""The published setting: DIN's item vectors, and the mean of a history's vectors as the query. Needs torch."""

from dataclasses import dataclass

import numpy as np

from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.model.counting import count_items
from beamtree.types import NOTHING, Float32Array

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
    """As `MakeVectors`: the item vectors of the baseline `din`, learned or found in the budget's directory.

    Left open by the paper and chosen here: the mean is over as many of the latest items as DIN reads, and who has no
    history is asked for with the mean over all training interactions.
    """
    from beamtree.baselines.neural import din

    network = din.train(din.tuned, dataset, split, budget=budget).module
    vectors = np.ascontiguousarray(din.item_vectors(network), dtype=np.float32)
    counts = count_items(dataset.sequences.items, split.train, num_items=len(dataset.items))
    mean = counts.astype(np.float32) @ vectors / np.float32(max(1, counts.sum()))
    return MeanOfHistory(vectors, network.settings.attention_history, mean)
