"""The tree over the items: a shape that is pure arithmetic, and one permutation that puts items on its leaves.

A tree with C leaf slots and branching B has height H, the smallest integer of at least 1 with B^H >= C. Level j < H is
full with N_j = B^j nodes; level H holds the C leaves. Leaf p has the ancestor floor(p N_j / C) on level j, so node i of
level j covers the leaves from ceil(i C / N_j) up to, but without, ceil((i + 1) C / N_j). There are no pointers and no
ancestor table. All arithmetic is in 64 bits, because p N_j leaves 32 bits early.
"""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beamtree.errors import InputError
from beamtree.types import NOTHING, BoolArray, Int32Array, Int64Array, IntArray

ReadOnly = TypeVar("ReadOnly", bound=NDArray[np.generic])

NO_ITEMS: Int32Array = np.empty(0, dtype=np.int32)

MAX_LEAVES = 2**31 - 1
"""Leaves and items are numbered with int32; the square of this still fits into int64."""


def tree_height(num_leaves: int, *, branching: int) -> int:
    """The smallest height of at least 1 whose level has room for all leaves, counted in integers."""
    height, room = 1, branching
    while room < num_leaves:
        height, room = height + 1, room * branching
    return height


@dataclass(frozen=True)
class TreeShape:
    """The nodes of a tree and their ancestry: everything that does not depend on the placement of the items.

    level_sizes (height + 1,): nodes of each level, the leaves last.
    level_offsets (height + 2,): node i of level j is row level_offsets[j] + i of a table over all nodes; the last
    entry is num_nodes.
    A `level` argument is an int, or an integer array that broadcasts against the nodes. Results are int64.
    Raises InputError when branching or num_leaves is out of range, or a level does not exist.
    """

    branching: int
    num_leaves: int
    height: int = field(init=False, repr=False, compare=False)
    level_sizes: Int64Array = field(init=False, repr=False, compare=False)
    level_offsets: Int64Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 2 <= self.branching <= MAX_LEAVES:
            raise InputError(
                f"A tree needs a branching of at least 2, got {self.branching}. Use 2 unless you measured another."
            )
        if not 1 <= self.num_leaves <= MAX_LEAVES:
            raise InputError(
                f"A tree needs between 1 and {MAX_LEAVES:,} leaves, got {self.num_leaves:,}. "
                "Give it one leaf per item or more."
            )
        height = tree_height(self.num_leaves, branching=self.branching)
        sizes = np.array([self.branching**level for level in range(height)] + [self.num_leaves], dtype=np.int64)
        object.__setattr__(self, "height", height)
        object.__setattr__(self, "level_sizes", _read_only(sizes))
        object.__setattr__(self, "level_offsets", _read_only(np.concatenate(([0], np.cumsum(sizes)))))

    @property
    def num_nodes(self) -> int:
        """Nodes of all levels, root and leaves included."""
        return int(self.level_offsets[-1])

    def ancestors(self, leaves: ArrayLike, level: int | Int64Array) -> Int64Array:
        """The node of `level` above each leaf; the leaf itself on the leaf level."""
        size = self._size_of(level, deepest=self.height)
        return np.asarray(np.asarray(leaves, dtype=np.int64) * size // self.num_leaves)

    def leaf_ranges(self, nodes: ArrayLike, level: int | Int64Array) -> tuple[Int64Array, Int64Array]:
        """The leaves below each node of `level`, as (first, end) with the end left out; never empty."""
        size = self._size_of(level, deepest=self.height)
        index = np.asarray(nodes, dtype=np.int64)
        return _ceil_divide(index * self.num_leaves, size), _ceil_divide((index + 1) * self.num_leaves, size)

    def child_ranges(self, nodes: ArrayLike, level: int) -> tuple[Int64Array, Int64Array]:
        """The 1 to B children of each node of `level`, as (first, end) on level + 1 with the end left out."""
        self._size_of(level, deepest=self.height - 1)
        if level == self.height - 1:
            return self.leaf_ranges(nodes, level)
        first = np.asarray(nodes, dtype=np.int64) * self.branching
        return first, first + self.branching

    def _size_of(self, level: int | Int64Array, *, deepest: int) -> Int64Array:
        levels = np.asarray(level)
        if levels.size and (levels.min() < 0 or levels.max() > deepest):
            raise InputError(
                f"Expected a level from 0 (the root) to {deepest} of a tree of height {self.height}, got {level}."
            )
        return np.asarray(self.level_sizes[levels])


@dataclass(frozen=True, eq=False)
class ItemTree:
    """A tree with its items, immutable: another placement of the items is another tree.

    item_at_leaf (num_leaves,): the item on each leaf, or -1 where the leaf is vacant. Every item 0 .. num_items - 1
    is on exactly one leaf.
    removed: items that are never returned. They keep their leaf, so that histories still read their vectors, but
    item_at_leaf is -1 there: a search treats the leaf as vacant.
    leaf_of_item (num_items,): the leaf of every item, removed ones included.
    The arrays are copies and read-only, `removed` ascending without repeats. Raises InputError for repeated, missing or
    impossible items, where all items are removed, and for a branching below 2.
    """

    branching: int
    item_at_leaf: Int32Array
    removed: Int32Array = field(default_factory=lambda: NO_ITEMS, kw_only=True, repr=False)
    shape: TreeShape = field(init=False, repr=False)
    leaf_of_item: Int32Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        placed = np.asarray(self.item_at_leaf)
        if placed.ndim != 1 or not np.issubdtype(placed.dtype, np.integer):
            raise InputError(
                f"Expected item_at_leaf as a flat integer array, got {placed.dtype} of shape {placed.shape}. "
                "Give the item of each leaf, -1 where a leaf is vacant."
            )
        object.__setattr__(self, "shape", TreeShape(self.branching, placed.size))
        leaf_of_item, returned = _invert(placed), placed.astype(np.int32)
        removed = _checked_removals(self.removed, num_items=leaf_of_item.size)
        returned[leaf_of_item[removed]] = NOTHING
        object.__setattr__(self, "removed", _read_only(removed))
        object.__setattr__(self, "leaf_of_item", _read_only(leaf_of_item))
        object.__setattr__(self, "item_at_leaf", _read_only(returned))

    @property
    def num_leaves(self) -> int:
        """Leaf slots, vacant ones included."""
        return self.shape.num_leaves

    @property
    def num_items(self) -> int:
        """Items on the leaves, removed ones included."""
        return self.leaf_of_item.size

    @property
    def num_present(self) -> int:
        """Items that may be returned."""
        return self.num_items - self.removed.size

    @property
    def placement(self) -> Int32Array:
        """The item on each leaf (num_leaves,), removed ones included, -1 where the leaf is vacant."""
        placed = np.full(self.num_leaves, NOTHING, dtype=np.int32)
        placed[self.leaf_of_item] = np.arange(self.num_items, dtype=np.int32)
        return placed

    def without(self, removed: Int32Array) -> "ItemTree":
        """The same placement with exactly these items removed."""
        return ItemTree(self.branching, self.placement, removed=removed)

    @property
    def height(self) -> int:
        """The level of the leaves; the root is level 0."""
        return self.shape.height

    @property
    def level_sizes(self) -> Int64Array:
        """Nodes of each level, the leaves last: (height + 1,)."""
        return self.shape.level_sizes

    @property
    def level_offsets(self) -> Int64Array:
        """First row of each level in a table over all nodes, closed by num_nodes: (height + 2,)."""
        return self.shape.level_offsets

    @property
    def num_nodes(self) -> int:
        """Nodes of all levels, root and leaves included."""
        return self.shape.num_nodes

    def ancestors(self, leaves: ArrayLike, level: int | Int64Array) -> Int64Array:
        """See TreeShape.ancestors."""
        return self.shape.ancestors(leaves, level)

    def leaf_ranges(self, nodes: ArrayLike, level: int | Int64Array) -> tuple[Int64Array, Int64Array]:
        """See TreeShape.leaf_ranges."""
        return self.shape.leaf_ranges(nodes, level)

    def child_ranges(self, nodes: ArrayLike, level: int) -> tuple[Int64Array, Int64Array]:
        """See TreeShape.child_ranges."""
        return self.shape.child_ranges(nodes, level)

    def item_ancestors(self, items: ArrayLike, level: int | Int64Array) -> Int64Array:
        """The node of `level` above each item; -1 (no item) stays -1."""
        item_ids = np.asarray(items, dtype=np.int64)
        return np.where(item_ids >= 0, self.ancestors(self.leaf_of_item[item_ids], level), NOTHING)

    def occupied(self, level: int) -> BoolArray:
        """Whether any item that may be returned is below each node of `level`: (level_sizes[level],)."""
        nodes = self.ancestors(np.flatnonzero(self.item_at_leaf != NOTHING), level)
        has_item = np.zeros(self.level_sizes[level], dtype=np.bool_)
        has_item[nodes] = True
        return has_item


def _invert(item_at_leaf: IntArray) -> Int32Array:
    """The leaf of every item; refuses a placement that is not one-to-one onto 0 .. items - 1."""
    leaves = np.flatnonzero(item_at_leaf != NOTHING)
    items = item_at_leaf[leaves].astype(np.int64)
    if not items.size:
        raise InputError("Expected at least one item on the leaves, all are vacant. Place every item of the catalogue.")
    outside = (items < 0) | (items >= items.size)
    if outside.any() or np.bincount(items, minlength=items.size).max() > 1:
        raise InputError(_fault(items, leaves=leaves, outside=outside))
    leaf_of_item = np.empty(items.size, dtype=np.int32)
    leaf_of_item[items] = leaves
    return leaf_of_item


def _checked_removals(removed: ArrayLike, *, num_items: int) -> Int32Array:
    """Removed items, ascending without repeats; refuses impossible ones, and a tree that nothing is left of."""
    items = np.unique(np.asarray(removed))
    if items.size and (not np.issubdtype(items.dtype, np.integer) or items[0] < 0 or items[-1] >= num_items):
        raise InputError(f"Expected removed items from 0 to {num_items - 1:,}, got {items[0]} to {items[-1]}.")
    if items.size == num_items:
        raise InputError(f"All {num_items:,} items would be removed. Leave at least one that can be returned.")
    return items.astype(np.int32)


def _fault(items: Int64Array, *, leaves: Int64Array, outside: BoolArray) -> str:
    """Names one leaf that carries an impossible or repeated item."""
    remedy = (
        f"Number the {items.size:,} placed items 0 to {items.size - 1:,}, each on one leaf, with -1 on vacant leaves."
    )
    order = np.argsort(items, kind="stable")
    repeats = order[1:][items[order[1:]] == items[order[:-1]]]
    if repeats.size:
        second = repeats[0]
        first = np.flatnonzero(items == items[second])[0]
        return f"Item {items[second]} stands on leaf {leaves[first]} and again on leaf {leaves[second]}. {remedy}"
    where = np.flatnonzero(outside)[0]
    return f"Leaf {leaves[where]} carries item {items[where]}, outside 0 to {items.size - 1:,}. {remedy}"


def _ceil_divide(numerator: Int64Array, denominator: Int64Array) -> Int64Array:
    return np.asarray((numerator + denominator - 1) // denominator)


def _read_only(array: ReadOnly) -> ReadOnly:
    array.setflags(write=False)
    return array
