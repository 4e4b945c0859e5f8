"""Where items stand before anything is learned: an order of the items, and the tree that takes them in that order.

The shape of a tree depends on its size alone, so an initial tree is an order: random, by category, or by clustering.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from beamtree.errors import InputError
from beamtree.tree.item_tree import VACANT, Int32Array, Int64Array, ItemTree, TreeShape


def plant(order: ArrayLike, *, branching: int, num_leaves: int | None = None) -> ItemTree:
    """The tree whose leaves carry the items in this order, from left to right.

    order (items,): a permutation of 0 .. items - 1. Leaves beyond the number of items stay vacant and are spread
    evenly, so that later items find room everywhere.
    Raises InputError when there are fewer leaves than items, or when the order is not a permutation.
    """
    items = np.asarray(order)
    leaves = items.size if num_leaves is None else num_leaves
    if leaves < items.size:
        raise InputError(
            f"Expected at least {items.size:,} leaves for {items.size:,} items, got {leaves:,}. Raise num_leaves."
        )
    if leaves == items.size or items.ndim != 1:
        return ItemTree(branching, items)
    shape = TreeShape(branching, leaves)
    item_at_leaf = np.full(shape.num_leaves, VACANT, dtype=items.dtype)
    item_at_leaf[np.arange(items.size, dtype=np.int64) * leaves // max(items.size, 1)] = items
    return ItemTree(branching, item_at_leaf)


def random_order(num_items: int, *, generator: np.random.Generator) -> Int32Array:
    """The items in random order: (num_items,)."""
    return generator.permutation(num_items).astype(np.int32)


def category_order(
    categories: pl.Series | Sequence[Any] | NDArray[Any], *, generator: np.random.Generator
) -> Int32Array:
    """The items (items,) with those of one category side by side; categories and the items within each are shuffled.

    categories (items,): the category of each dense item. Items without one (null) form a group of their own.
    """
    group_of_item = pl.Series(categories).rank("dense").fill_null(0).to_numpy().astype(np.int64)
    items = random_order(group_of_item.size, generator=generator)
    place_of_group = generator.permutation(group_of_item.max(initial=0) + 1)
    return items[np.argsort(place_of_group[group_of_item[items]], kind="stable")]


def clustering_order(
    vectors: ArrayLike,
    *,
    branching: int,
    generator: np.random.Generator,
    on_step: Callable[[], None] = lambda: None,
) -> Int32Array:
    """The items (items,) by recursive balanced k-means from the root down, so that similar items share ancestors.

    vectors (items, size): one finite vector per dense item. At every node the items are clustered into as many clusters
    as it has children, and each child takes as many items as it has leaves in a tree with one leaf per item.
    Needs scikit-learn, and runs one k-means per inner node. The result does not depend on the number of threads.
    on_step: called before each k-means; it may raise to stop.
    Raises InputError for vectors that are not a table of finite numbers.
    """
    from sklearn import config_context
    from threadpoolctl import threadpool_limits

    points = np.asarray(vectors)
    if points.ndim != 2 or not points.shape[0] or not np.issubdtype(points.dtype, np.number):
        raise InputError(
            f"Expected vectors as a table (items, size) of numbers, got {points.dtype} of shape {points.shape}. "
            "Give one row per item."
        )
    broken = ~np.isfinite(points).all(axis=1)
    if broken.any():
        raise InputError(
            f"Expected finite vectors, got NaN or infinity for {broken.sum():,} items, "
            f"first for item {broken.argmax()}. Train their model again, or take another initial order."
        )
    shape = TreeShape(branching, points.shape[0])
    order = random_order(shape.num_leaves, generator=generator)
    with config_context(assume_finite=True, skip_parameter_validation=True), threadpool_limits(1):
        for level in range(shape.height - 1):
            child_first, child_end = shape.leaf_ranges(np.arange(shape.level_sizes[level + 1]), level + 1)
            children = (-1, branching)  # above the leaves every node has all its children
            for first, end in zip(child_first.reshape(children), child_end.reshape(children), strict=True):
                on_step()
                leaves = slice(first[0], end[-1])
                distances = _distances_to_clusters(points[order[leaves]], num_clusters=branching, generator=generator)
                order[leaves] = order[leaves][fill_clusters(distances, capacities=end - first)]
    return order


def _distances_to_clusters(
    points: NDArray[Any], *, num_clusters: int, generator: np.random.Generator
) -> NDArray[np.floating[Any]]:
    """Distance of each point to each centre that k-means finds: (points, num_clusters)."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(num_clusters, n_init=1, max_iter=50, random_state=int(generator.integers(2**31)))
    with warnings.catch_warnings():
        # Fewer distinct points than clusters is no fault here: equal points are split anyhow.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(model.fit_transform(points))


def fill_clusters(distances: NDArray[np.floating[Any]], *, capacities: Int64Array) -> Int64Array:
    """Points, cluster after cluster, each cluster filled to its capacity: (points,).

    A cluster takes the points that would lose most by going to the best of the clusters still to come.
    """
    remaining = np.arange(distances.shape[0])
    taken = []
    for cluster, capacity in enumerate(capacities[:-1]):
        loss = distances[remaining, cluster] - distances[remaining, cluster + 1 :].min(axis=1)
        ranked = np.argsort(loss, kind="stable")
        taken.append(remaining[ranked[:capacity]])
        remaining = np.sort(remaining[ranked[capacity:]])
    return np.concatenate([*taken, remaining])
