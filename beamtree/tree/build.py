"""Initial trees: an order of the items, and the tree whose leaves take them in that order.

The shape of a tree depends on its size alone, so an initial tree is an order: random, by category, or by clustering.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from beamtree.errors import InputError
from beamtree.tree.item_tree import ItemTree, TreeShape
from beamtree.types import NOTHING, AnyArray, Float32Array, Int32Array, Int64Array

POWER_STEPS = 5
"""Steps towards the direction in which the items of a node differ most."""

DIVIDING_STEPS = 5
"""How often items are dealt out to children, and the direction moved to the difference of their means."""


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
    item_at_leaf = np.full(shape.num_leaves, NOTHING, dtype=items.dtype)
    item_at_leaf[np.arange(items.size, dtype=np.int64) * leaves // max(items.size, 1)] = items
    return ItemTree(branching, item_at_leaf)


def random_order(num_items: int, *, generator: np.random.Generator) -> Int32Array:
    """The items in random order: (num_items,)."""
    return generator.permutation(num_items).astype(np.int32)


def category_order(categories: pl.Series | Sequence[Any] | AnyArray, *, generator: np.random.Generator) -> Int32Array:
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
    """The items (items,) by recursive balanced clustering from the root down, so that similar items share ancestors.

    vectors (items, size): one finite vector per dense item. Every node sorts its items along one direction and deals
    them out to its children in that order, to each as many as it has leaves in a tree with one leaf per item. The
    direction begins as the one in which the items differ most and is then moved, in turn with the children, towards
    the difference of their means: for two children, k-means whose clusters are of these sizes. All nodes of a level
    are divided together, so that a million items take minutes.
    on_step: called before each level; it may raise to stop.
    Raises InputError for vectors that are not a table of finite numbers.
    """
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
    for level in range(shape.height - 1):
        on_step()
        order = order[_divided(points[order].astype(np.float32), shape, level=level, generator=generator)]
    return order


def _divided(points: Float32Array, shape: TreeShape, *, level: int, generator: np.random.Generator) -> NDArray[np.intp]:
    """An order (points,) of points that stand node by node: within each node of the level, child by child."""
    first, end = shape.leaf_ranges(np.arange(shape.level_sizes[level]), level)
    child_first, child_end = shape.leaf_ranges(np.arange(shape.level_sizes[level + 1]), level + 1)
    node_of_point = np.repeat(np.arange(first.size), end - first)
    centred = points - (_sums(points, first) / (end - first)[:, None])[node_of_point]
    # How far to one side of its node's middle a child stands, as a weight of its mean.
    side = np.tile(np.arange(shape.branching) - (shape.branching - 1) / 2, first.size).astype(np.float32)
    weights = (side / (child_end - child_first))[:, None]
    directions = generator.standard_normal((first.size, points.shape[1]), dtype=np.float32)
    for _ in range(POWER_STEPS):
        along = np.einsum("ps,ps->p", centred, directions[node_of_point])
        directions = _unit(_sums(centred * along[:, None], first), otherwise=directions)
    order = np.arange(len(points))
    for step in range(DIVIDING_STEPS):
        along = np.einsum("ps,ps->p", centred, directions[node_of_point])
        order = np.lexsort((along, node_of_point))
        if step + 1 < DIVIDING_STEPS:
            apart = (_sums(centred[order], child_first) * weights).reshape(first.size, shape.branching, -1).sum(axis=1)
            directions = _unit(apart, otherwise=directions)
    return order


def _sums(rows: Float32Array, first: Int64Array) -> Float32Array:
    """Sums over consecutive groups of rows (rows, size), which begin at `first` (groups,): (groups, size)."""
    return np.add.reduceat(rows, first, axis=0)


def _unit(vectors: Float32Array, *, otherwise: Float32Array) -> Float32Array:
    """Vectors (n, size) scaled to length 1; where one is zero, another in its place."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Float32Array = np.where(lengths > 0, vectors / np.maximum(lengths, np.float32(1e-30)), otherwise)
    return unit
