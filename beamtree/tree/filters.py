"""The leaves that each request may return, queried per node while a search descends.

A leaf is eligible when it carries an item, that item is allowed for everybody (stock, category, language), and it is
not excluded for this request (already seen). What holds for everybody is a running count along the leaves; what a
request excludes is a sorted list of keys request * leaves + leaf. Both answer for any range of leaves without a scan.
"""

from dataclasses import InitVar, dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from beamtree.data.requests import Requests
from beamtree.errors import InputError
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, BoolArray, Int32Array, Int64Array


@dataclass(frozen=True, eq=False)
class Eligibility:
    """The eligible leaves of every request.

    allowed_items (items,): bool, what any request may return; None allows all.
    excluded_items: (flat, offsets), offsets (requests + 1,): request r must not get flat[offsets[r] : offsets[r + 1]].
    Repeats and -1 are fine. None excludes nothing, for any number of requests.

    allowed_before (leaves + 1,): leaves with an allowed item before each leaf.
    excluded_keys: request * leaves + leaf of each excluded leaf that was allowed, ascending, without repeats.
    Raises InputError for arrays that do not fit the tree, and for requests without an entry in excluded_items.
    """

    tree: ItemTree
    allowed_items: InitVar[BoolArray | None] = field(default=None, kw_only=True)
    excluded_items: InitVar[tuple[Int32Array, Int64Array] | None] = field(default=None, kw_only=True)
    allowed_before: Int64Array = field(init=False, repr=False)
    excluded_keys: Int64Array = field(init=False, repr=False)
    num_requests: int | None = field(init=False)

    @classmethod
    def of(cls, requests: Requests, tree: ItemTree) -> "Eligibility":
        """What each of the requests may get."""
        excluded = None if requests.excluded is None else (requests.excluded.items, requests.excluded.offsets)
        return cls(tree, allowed_items=requests.allowed, excluded_items=excluded)

    def __post_init__(
        self, allowed_items: BoolArray | None, excluded_items: tuple[Int32Array, Int64Array] | None
    ) -> None:
        allowed_leaves = _allowed_leaves(self.tree, allowed_items=allowed_items)
        allowed_before = np.concatenate(([0], np.cumsum(allowed_leaves, dtype=np.int64)))
        keys = np.empty(0, dtype=np.int64)
        if excluded_items is not None:
            keys = _excluded_keys(self.tree, allowed_leaves=allowed_leaves, excluded_items=excluded_items)
        for array in (allowed_before, keys):
            array.setflags(write=False)
        object.__setattr__(self, "allowed_before", allowed_before)
        object.__setattr__(self, "excluded_keys", keys)
        object.__setattr__(self, "num_requests", None if excluded_items is None else len(excluded_items[1]) - 1)

    def count_below(self, requests: ArrayLike, nodes: ArrayLike, level: int) -> Int64Array:
        """Leaves below each node of `level` that its request may get; 0 for a node of -1. The arguments broadcast."""
        index = np.asarray(nodes, dtype=np.int64)
        first, end = self.tree.leaf_ranges(np.maximum(index, 0), level)
        count = (
            self.allowed_before[end]
            - self.allowed_before[first]
            - self._excluded_within(requests, first=first, end=end)
        )
        return np.asarray(np.where(index >= 0, count, 0))

    def total(self, requests: ArrayLike) -> Int64Array:
        """Leaves that each request may get in all."""
        return self.count_below(requests, 0, 0)

    def num_excluded(self, requests: ArrayLike) -> Int64Array:
        """Allowed leaves that each request excludes."""
        return self._excluded_within(requests, first=0, end=self.tree.num_leaves)

    def leaves(self, request: int) -> Int64Array:
        """The leaves that one request may get, ascending: (total(request),)."""
        is_eligible = np.diff(self.allowed_before).astype(np.bool_)
        if self.num_excluded(request):
            start = request * self.tree.num_leaves
            first, end = np.searchsorted(self.excluded_keys, [start, start + self.tree.num_leaves])
            is_eligible[self.excluded_keys[first:end] - start] = False
        return np.flatnonzero(is_eligible)

    def _excluded_within(self, requests: ArrayLike, *, first: Int64Array | int, end: Int64Array | int) -> Int64Array:
        asked = np.asarray(requests, dtype=np.int64)
        if self.num_requests is not None and asked.size and (asked.min() < 0 or asked.max() >= self.num_requests):
            raise InputError(
                f"Expected requests 0 to {self.num_requests - 1}, one for each list of excluded items, "
                f"got {asked.min()} to {asked.max()}. Give an empty list where nothing is excluded."
            )
        start = asked * self.tree.num_leaves
        before_first, before_end = (np.searchsorted(self.excluded_keys, start + leaf) for leaf in (first, end))
        return np.asarray(before_end - before_first, dtype=np.int64)


def _allowed_leaves(tree: ItemTree, *, allowed_items: BoolArray | None) -> BoolArray:
    occupied = np.asarray(tree.item_at_leaf != NOTHING)
    if allowed_items is None:
        return occupied
    if allowed_items.dtype != np.bool_ or allowed_items.shape != (tree.num_items,):
        raise InputError(
            f"Expected allowed_items as bool ({tree.num_items},), one entry per item of the tree, "
            f"got {allowed_items.dtype} of shape {allowed_items.shape}."
        )
    return np.asarray(occupied & allowed_items[tree.item_at_leaf])


def _excluded_keys(
    tree: ItemTree, *, allowed_leaves: BoolArray, excluded_items: tuple[Int32Array, Int64Array]
) -> Int64Array:
    items, offsets = excluded_items
    if not offsets.size or offsets[0] != 0 or offsets[-1] != items.size or (np.diff(offsets) < 0).any():
        raise InputError(
            f"Expected offsets of excluded_items that rise from 0 to its {items.size} items, "
            f"got {np.array2string(offsets, threshold=10)}."
        )
    if items.size and (items.min() < NOTHING or items.max() >= tree.num_items):
        raise InputError(
            f"Expected excluded items from 0 to {tree.num_items - 1} (or -1, unknown), "
            f"got {items.min()} to {items.max()}. Encode raw ids with the vocabulary of this tree."
        )
    request = np.repeat(np.arange(offsets.size - 1, dtype=np.int64), np.diff(offsets))
    leaf = tree.leaf_of_item[items].astype(np.int64)
    counts = (items != NOTHING) & allowed_leaves[leaf]
    keys = np.sort(request[counts] * tree.num_leaves + leaf[counts])
    return keys[np.diff(keys, prepend=-1) > 0]
