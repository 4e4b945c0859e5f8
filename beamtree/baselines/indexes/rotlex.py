"""ROTLEX: a learned tree whose leaves are buckets of vectors (Wei et al., KDD 2025). Needs torch, faiss and scipy.

Two levels of k branches (32 as published; fewer where a bucket would hold less than 8 items on average). An encoder
takes a query to the space of the node vectors; a softmax over the inner products on each level says which nodes hold
the query's neighbours. Search: the best nodes of the first level, the best buckets below them, a scan of their items.
Left open or chosen here:
- the first tree is a recursive balanced clustering of the vectors;
- queries are up to 8,192 training histories, the item vectors themselves are queries too, with an encoder of their own;
- 60 epochs, items re-assigned after each 20, the last time at the end with 20 epochs more for the encoder; no further
  20 epochs begin once the budget's seconds are spent;
- re-assignment: affinity of an item to a bucket = mean probability over the queries that have the item among their 15
  nearest, plus that of the item as a query; pairs in descending order while a bucket has fewer than 1.5 x the mean;
  only the 16 best buckets of an item are tried; if all of these are full, it goes to the one with most room.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np

from beamtree.baselines.indexes.faiss_search import serialised_bytes, with_nothing
from beamtree.baselines.indexes.index import POWERS, VectorIndex, rising
from beamtree.baselines.indexes.vectors import TrainingQueries
from beamtree.baselines.protocol import Budget
from beamtree.evaluation.answers import empty_result
from beamtree.retrieval.result import SearchResult
from beamtree.types import Float32Array, Int64Array

MIN_BUCKET = 8


@dataclass(frozen=True)
class Rotlex:
    """Sizes and training. searched_share: of the buckets, usually."""

    branching: int = 32
    width: int = 512
    max_queries: int = 8192
    rounds: int = 3
    epochs_per_round: int = 20
    searched_share: float = 1 / 8

    def __call__(self, vectors: Float32Array, *, queries: TrainingQueries, budget: Budget) -> VectorIndex:
        """As `BuildIndex`."""
        from beamtree.baselines.indexes.rotlex_router import learn_buckets

        branching = max(2, min(self.branching, isqrt(len(vectors) // MIN_BUCKET)))
        router, bucket_of_item = learn_buckets(
            vectors,
            queries(self.max_queries),
            branching=branching,
            width=self.width,
            rounds=self.rounds,
            epochs_per_round=self.epochs_per_round,
            budget=budget,
        )
        buckets = branching**2
        lists = bucket_lists(vectors, bucket_of_item, buckets=buckets)

        def search(queries: Float32Array, k: int, effort: int) -> SearchResult:
            """Scores are exact."""
            if len(queries) == 0:
                return empty_result(0, k=k)
            searched, log_probabilities = router.best_buckets(queries, count=min(effort, buckets))
            lists.nprobe = searched.shape[1]
            scores, items = lists.search_preassigned(queries, k, searched, log_probabilities)
            return with_nothing(items.astype(np.int32), scores)

        usual = max(1, round(buckets * self.searched_share))
        held = serialised_bytes(lists) + router.search_bytes
        return VectorIndex(search, "buckets", rising(*POWERS, usual, most=buckets), usual, held)


def bucket_lists(vectors: Float32Array, bucket_of_item: Int64Array, *, buckets: int) -> Any:
    """Inverted lists of faiss: the vectors (items, size) in the buckets (items,) that they were assigned to."""
    import faiss
    from faiss.contrib.ivf_tools import add_preassigned

    quantiser = faiss.IndexFlatIP(vectors.shape[1])
    index = faiss.IndexIVFFlat(quantiser, vectors.shape[1], buckets, faiss.METRIC_INNER_PRODUCT)
    index.is_trained = True
    add_preassigned(index, vectors, bucket_of_item)
    return index
