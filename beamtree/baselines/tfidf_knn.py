"""Nearest neighbours of a history by the TF-IDF cosine of whole histories. Needs SciPy."""

from typing import TYPE_CHECKING

import numpy as np

from beamtree.baselines.interaction_matrix import interaction_matrix, training_matrix
from beamtree.baselines.popularity import popular_items
from beamtree.baselines.protocol import Budget
from beamtree.baselines.tuning import choose
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.evaluation.answers import ScoredItems
from beamtree.types import Float32Array

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

NEIGHBOURS = (100, 30, 300, 1000)
"""To choose from."""
SIMILARITIES_AT_A_TIME = 2**23
"""Similarities (requests x training spans) that are in memory together: 32 MB, and as much again to sort them."""


class TfidfKnn:
    """Items of the most similar training spans, each counted by its similarity; popular items where there are none.

    The weight of an item in a history is its inverse document frequency, ln(1 + spans / spans that contain it). A
    user's training span counts as a neighbour like any other.
    """

    name = "tfidf-knn"

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> ScoredItems:
        """As `Baseline.fit`."""
        num_items = len(dataset.items)
        had = training_matrix(dataset, split)
        idf = np.log1p(had.shape[0] / np.maximum(1, np.bincount(had.indices, minlength=num_items))).astype(np.float32)
        spans_by_item = _unit_rows(had, idf).T.tocsr()
        others = popular_items(dataset, split).below_zero()

        def with_neighbours(count: int) -> ScoredItems:
            def score(requests: Requests) -> Float32Array:
                asking = _unit_rows(interaction_matrix(requests.histories, num_items=num_items), idf)
                scores: Float32Array = (_nearest(asking, spans_by_item, count=count) @ had).toarray()
                return np.where(scores > 0, scores, others)

            return ScoredItems(score, num_items=num_items)

        counts = [count for count in NEIGHBOURS if count <= had.shape[0]] or [had.shape[0]]
        return choose(counts, with_neighbours, dataset, split, name=self.name, budget=budget)


def _unit_rows(matrix: "csr_matrix", weights: Float32Array) -> "csr_matrix":
    """Columns weighed, then rows of length 1; empty rows stay empty."""
    weighed = matrix.copy()
    weighed.data = weights[matrix.indices]
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    lengths = np.sqrt(np.bincount(row, weights=weighed.data.astype(np.float64) ** 2, minlength=matrix.shape[0]))
    weighed.data /= lengths[row].astype(np.float32)
    return weighed


def _nearest(asking: "csr_matrix", spans_by_item: "csr_matrix", *, count: int) -> "csr_matrix":
    """Similarities (requests, spans) of each request to its `count` nearest spans, nothing for the others."""
    from scipy.sparse import csr_matrix, vstack

    num_requests, num_spans = asking.shape[0], spans_by_item.shape[1]
    block = max(1, SIMILARITIES_AT_A_TIME // num_spans)
    parts = []
    for first in range(0, num_requests, block):
        similarities = (asking[first : first + block] @ spans_by_item).toarray()
        nearest = np.argpartition(-similarities, count - 1, axis=1)[:, :count]
        offsets = np.arange(len(similarities) + 1) * nearest.shape[1]
        values = np.take_along_axis(similarities, nearest, axis=1)
        parts.append(csr_matrix((values.ravel(), nearest.ravel(), offsets), shape=(len(similarities), num_spans)))
    return vstack(parts, format="csr") if parts else csr_matrix((0, num_spans), dtype=np.float32)
