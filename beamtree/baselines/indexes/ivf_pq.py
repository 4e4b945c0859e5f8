"""IVF-PQ: inverted lists of product-quantised vectors (Jégou, Douze, Schmid, TPAMI 2011). Needs faiss.

Not in the paper; the usual first choice. Sizes after faiss' guidelines: 4 sqrt(items) lists,
residuals from the list's centre in a byte for every two dimensions, a quarter of the lists probed.
"""

from dataclasses import dataclass
from math import isqrt

import numpy as np

from beamtree.baselines.indexes.faiss_search import serialised_bytes, with_nothing
from beamtree.baselines.indexes.index import POWERS, VectorIndex, rising
from beamtree.baselines.indexes.vectors import TrainingQueries
from beamtree.baselines.protocol import Budget
from beamtree.retrieval.result import SearchResult
from beamtree.types import Float32Array

MIN_LIST = 8
"""Vectors in an inverted list, on average, at least."""


@dataclass(frozen=True)
class IvfPq:
    """dims_per_byte: a vector whose size that does not divide gets a byte for each dimension."""

    dims_per_byte: int = 2

    def __call__(self, vectors: Float32Array, *, queries: TrainingQueries, budget: Budget) -> VectorIndex:
        """As `BuildIndex`."""
        import faiss

        del queries
        count, size = vectors.shape
        lists = max(1, min(4 * isqrt(count), count // MIN_LIST))
        codes = size // self.dims_per_byte if size % self.dims_per_byte == 0 else size
        bits = min(8, count.bit_length() - 1)
        index = faiss.IndexIVFPQ(faiss.IndexFlatIP(size), size, lists, codes, bits, faiss.METRIC_INNER_PRODUCT)
        for clustering in (index.cp, index.pq.cp):
            clustering.seed = budget.seed % 2**31
            clustering.min_points_per_centroid = 1
        index.train(vectors)
        index.add(vectors)

        def search(queries: Float32Array, k: int, effort: int) -> SearchResult:
            """Scores are those of the quantised vectors."""
            scores, items = index.search(queries, k, params=faiss.SearchParametersIVF(nprobe=effort))
            return with_nothing(items.astype(np.int32), scores)

        usual = max(1, lists // 4)
        return VectorIndex(search, "probes", rising(*POWERS, usual, most=lists), usual, serialised_bytes(index))
