"""Which bucket an item belongs to: at first by clustering, then by the queries that are to find it there."""

from collections.abc import Callable

import numpy as np

from beamtree.tree.build import clustering_order
from beamtree.types import Float32Array, Int32Array, Int64Array

CAPACITY = 1.5
"""Items that a bucket may hold, in multiples of the mean."""

CONSIDERED_BUCKETS = 16
ITEMS_AT_A_TIME = 4096

Affinity = Callable[[slice], Float32Array]
"""From some items to their affinity to all buckets, (items, buckets)."""


def first_buckets(vectors: Float32Array, *, branching: int, generator: np.random.Generator) -> Int64Array:
    """Buckets (items,) of nearly one size, of items that stand side by side in a recursive balanced clustering."""
    order = clustering_order(vectors, branching=2, generator=generator)
    buckets = np.empty(len(order), dtype=np.int64)
    buckets[order] = np.arange(len(order)) * branching**2 // len(order)
    return buckets


def mean_over_askers(neighbours: Int32Array, probabilities: Float32Array, *, num_items: int) -> Affinity:
    """The mean of the probabilities (queries, buckets) over the queries that have an item among their neighbours.

    neighbours: (queries, neighbours); 0 for an item that nobody has.
    """
    from scipy import sparse

    count = neighbours.shape[1]
    ones = np.ones(neighbours.size, dtype=np.float32)
    has = sparse.csr_array((ones, neighbours.ravel(), np.arange(0, neighbours.size + 1, count)))
    has.resize((len(neighbours), num_items))
    asked = has.T.tocsr()
    askers = np.maximum(np.asarray(asked.sum(axis=1)).ravel(), 1.0)

    def affinity(rows: slice) -> Float32Array:
        return np.asarray(asked[rows] @ probabilities / askers[rows, None], dtype=np.float32)

    return affinity


def assign_to_buckets(affinity: Affinity, *, num_items: int, buckets: int) -> Int64Array:
    """The bucket of each item (items,): pairs in descending order of affinity, while there is room in the bucket.

    A bucket has room for `CAPACITY` x the mean. An item for which its `CONSIDERED_BUCKETS` best are all full goes to
    the bucket with most room.
    """
    considered = min(CONSIDERED_BUCKETS, buckets)
    best = np.empty((num_items, considered), dtype=np.int64)
    values = np.empty((num_items, considered), dtype=np.float32)
    for first in range(0, num_items, ITEMS_AT_A_TIME):
        rows = slice(first, first + ITEMS_AT_A_TIME)
        all_buckets = affinity(rows)
        best[rows] = np.argpartition(-all_buckets, considered - 1, axis=1)[:, :considered]
        values[rows] = np.take_along_axis(all_buckets, best[rows], axis=1)
    room = [int(np.ceil(CAPACITY * num_items / buckets))] * buckets
    bucket_of_item = [-1] * num_items
    candidates = best.ravel().tolist()
    for pair in np.argsort(-values.ravel(), kind="stable").tolist():
        item, bucket = pair // considered, candidates[pair]
        if bucket_of_item[item] < 0 and room[bucket] > 0:
            bucket_of_item[item] = bucket
            room[bucket] -= 1
    for item in [item for item, bucket in enumerate(bucket_of_item) if bucket < 0]:
        widest = max(range(buckets), key=room.__getitem__)
        bucket_of_item[item] = widest
        room[widest] -= 1
    return np.array(bucket_of_item, dtype=np.int64)
