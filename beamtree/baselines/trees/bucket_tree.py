"""A tree whose leaves are buckets of items, which may overlap: JTR's index.

All leaves are on one level: a node that is small enough above it goes on as its own only child.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from beamtree.types import NOTHING, BoolArray, Float32Array, Int32Array, Int64Array

LLOYD_STEPS = 20
MAX_LEAVES_OF_AN_ITEM = 2


@dataclass(frozen=True, eq=False)
class BucketTree:
    """first_child: for each level from the root to the one above the buckets, (nodes + 1,), where the children of each
    node begin on the next level, closed by their number. leaves_of_item: (items, 2), the buckets of each item, the one
    that it belongs to most first, -1 where there is no second.
    """

    first_child: tuple[Int64Array, ...]
    leaves_of_item: Int64Array

    @property
    def height(self) -> int:
        """The level of the buckets; the root is level 0."""
        return len(self.first_child)

    @property
    def num_leaves(self) -> int:
        """Buckets, empty ones included."""
        return int(self.first_child[-1][-1])

    def size(self, level: int) -> int:
        """Nodes of a level below the root."""
        return int(self.first_child[level - 1][-1])

    @cached_property
    def paths(self) -> Int64Array:
        """The nodes above each bucket, itself included: (height, buckets), level 1 first."""
        nodes = np.arange(self.num_leaves)
        levels = [nodes]
        for first in reversed(self.first_child[1:]):
            nodes = np.searchsorted(first, nodes, side="right") - 1
            levels.append(nodes)
        return np.stack(levels[::-1])

    @cached_property
    def buckets(self) -> Int32Array:
        """Items of each bucket, rising: (buckets, items of the largest), -1 where there are fewer."""
        item, place = np.nonzero(self.leaves_of_item != NOTHING)
        leaf = self.leaves_of_item[item, place]
        order = np.lexsort((item, leaf))
        counts = np.bincount(leaf, minlength=self.num_leaves)
        table = np.full((self.num_leaves, max(1, int(counts.max()))), NOTHING, dtype=np.int32)
        table[np.arange(table.shape[1]) < counts[:, None]] = item[order]
        return table

    def with_leaves(self, leaves_of_item: Int64Array) -> "BucketTree":
        """The same nodes with the items elsewhere."""
        return replace(self, leaves_of_item=leaves_of_item)

    def search(self, query: Float32Array, vectors: list[Float32Array], *, beam_width: int) -> Int64Array:
        """The best buckets (at most beam_width,) by inner products with the nodes' vectors, best first."""
        kept = np.zeros(1, dtype=np.int64)
        for first, of_level in zip(self.first_child, vectors, strict=True):
            counts = first[kept + 1] - first[kept]
            nodes = np.repeat(first[kept] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
            nodes.sort()
            kept = nodes[np.argsort(-(of_level[nodes] @ query), kind="stable")[:beam_width]]
        return kept


def cluster(
    vectors: Float32Array, *, branching: int, max_items: int, generator: np.random.Generator
) -> tuple[BucketTree, list[Float32Array]]:
    """A tree by recursive k-means, until no bucket has more than max_items, and the centres of its nodes.

    vectors: (items, size). The centres are (nodes, size) for each level from 1 on.
    """
    members: list[Int64Array] = [np.arange(len(vectors))]
    first_child: list[Int64Array] = []
    centres: list[Float32Array] = []
    while not first_child or max(map(len, members)) > max_items:
        divided = [
            _divided(vectors, items, branching=branching, generator=generator) if len(items) > max_items else [items]
            for items in members
        ]
        first_child.append(np.concatenate([[0], np.cumsum([len(parts) for parts in divided])]).astype(np.int64))
        members = [part for parts in divided for part in parts]
        centres.append(np.stack([vectors[items].mean(axis=0) for items in members]))
    leaves = np.full((len(vectors), MAX_LEAVES_OF_AN_ITEM), NOTHING, dtype=np.int64)
    for leaf, items in enumerate(members):
        leaves[items, 0] = leaf
    return BucketTree(tuple(first_child), leaves), centres


def overlapped(tree: BucketTree, items: Int32Array, leaves: Int64Array) -> Int64Array:
    """Where the items belong by what queries found: (items, 2), as `BucketTree.leaves_of_item`.

    items: (queries,), what each query was after; leaves: (queries, beam), the buckets that its beam found, -1 for none.
    An item goes to the two buckets that most of its queries found, equal ones by number; one that no query was after
    stays.
    """
    query, place = np.nonzero(leaves != NOTHING)
    pairs, counts = np.unique(
        items[query].astype(np.int64) * tree.num_leaves + leaves[query, place], return_counts=True
    )
    item, leaf = np.divmod(pairs, tree.num_leaves)
    order = np.lexsort((leaf, -counts, item))
    item, leaf = item[order], leaf[order]
    rank = np.arange(len(item)) - np.searchsorted(item, item)
    chosen = tree.leaves_of_item.copy()
    chosen[item] = NOTHING
    is_kept: BoolArray = rank < MAX_LEAVES_OF_AN_ITEM
    chosen[item[is_kept], rank[is_kept]] = leaf[is_kept]
    return chosen


def _divided(
    vectors: Float32Array, items: Int64Array, *, branching: int, generator: np.random.Generator
) -> list[Int64Array]:
    """Items in at most `branching` clusters by k-means; in equal parts where they cannot be told apart."""
    points = vectors[items]
    count = min(branching, len(items))
    centres = points[generator.choice(len(points), size=count, replace=False)]
    for _ in range(LLOYD_STEPS):
        distances = (centres**2).sum(axis=1) - 2.0 * points @ centres.T
        cluster_of = distances.argmin(axis=1)
        sizes = np.bincount(cluster_of, minlength=count)
        sums = np.zeros_like(centres)
        np.add.at(sums, cluster_of, points)
        moved = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    parts = [items[cluster_of == number] for number in range(count) if (cluster_of == number).any()]
    return parts if len(parts) > 1 else np.array_split(items, count)
