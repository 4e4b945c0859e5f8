"""Which known items a new one is likely to be like, before anybody has learned anything about it.

Where first interactions are at hand, the items that stood near it in the same people's histories, as often as they did;
else the most popular items of its category, and else all items, each weighing as much as it is popular.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from beamtree.data.columns import CATEGORY, ITEM_ID, TIMESTAMP, USER_ID
from beamtree.data.vocabulary import Vocabulary
from beamtree.types import AnyArray, Float32Array, Int64Array

WINDOW = 5
"""Interactions of the same person, before and after that with a new item, whose items are its neighbours."""

CATEGORY_ITEMS = 50
"""The most popular items of a category that speak for it."""


class ReadVectors(Protocol):
    """Reads vectors of known items."""

    def __call__(self, items: Int64Array) -> AnyArray:
        """(n, width) for dense items (n,)."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Groups of known items, and the group of each new one.

    groups: (items, weights), weights not below 0 and not all 0; group_of (new items,).
    """

    groups: tuple[tuple[Int64Array, Float32Array], ...]
    group_of: Int64Array

    def means(self, read: ReadVectors) -> Float32Array:
        """The weighted mean of the neighbours' vectors for each new item: (new items, width)."""
        means = [
            (weights / weights.sum()) @ read(items).astype(np.float32, copy=False) for items, weights in self.groups
        ]
        found: Float32Array = np.stack(means)[self.group_of].astype(np.float32)
        return found

    def nearest(self) -> Int64Array:
        """The neighbour that weighs most for each new item: (new items,)."""
        strongest = np.array([items[np.argmax(weights)] for items, weights in self.groups], dtype=np.int64)
        return strongest[self.group_of]


@dataclass(frozen=True, eq=False)
class FirstInteractions:
    """What a log says of new items.

    counts (new items,): their interactions; items, near, times: new item items[i] stood near the known item near[i] so
    many times, sorted by the new item.
    """

    counts: Int64Array
    items: Int64Array
    near: Int64Array
    times: Int64Array

    @classmethod
    def none(cls, num_new: int) -> "FirstInteractions":
        """Nothing is known of the new items."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(np.zeros(num_new, dtype=np.int64), nothing, nothing, nothing)

    @classmethod
    def count(cls, log: pl.DataFrame, *, known: Vocabulary, new: Vocabulary) -> "FirstInteractions":
        """Read a log with user_id, item_id and timestamp; items that are neither known nor new are passed over."""
        vocabulary = Vocabulary(pl.concat([known.ids, new.ids]))
        ordered = log.sort(USER_ID, TIMESTAMP, maintain_order=True)
        dense = vocabulary.encode(ordered[ITEM_ID].cast(vocabulary.ids.dtype, strict=False)).astype(np.int64)
        users = ordered[USER_ID].rle_id().to_numpy()
        users, dense = users[dense >= 0], dense[dense >= 0]
        num_known = len(known)
        pairs: list[Int64Array] = []
        for gap in range(1, WINDOW + 1):
            is_same = users[gap:] == users[:-gap]
            for one, other in ((dense[gap:], dense[:-gap]), (dense[:-gap], dense[gap:])):
                is_pair = is_same & (one >= num_known) & (other < num_known)
                pairs.append((one[is_pair] - num_known) * num_known + other[is_pair])
        keys, times = np.unique(np.concatenate(pairs), return_counts=True)
        counts = np.bincount(dense[dense >= num_known] - num_known, minlength=len(new)).astype(np.int64)
        return cls(counts, keys // num_known, keys % num_known, times.astype(np.int64))


def find_neighbours(
    rows: pl.DataFrame, *, item_table: pl.DataFrame, popularity: AnyArray, first: FirstInteractions
) -> Neighbours:
    """Neighbours of the new items whose rows these are, among the items of the table; popularity: (items,)."""
    groups: list[tuple[Int64Array, Float32Array]] = []
    group_of = np.full(len(rows), -1, dtype=np.int64)
    bounds = np.searchsorted(first.items, np.arange(len(rows) + 1))
    for item in np.flatnonzero(np.diff(bounds)).tolist():
        own = slice(bounds[item], bounds[item + 1])
        group_of[item] = len(groups)
        groups.append((first.near[own], first.times[own].astype(np.float32)))
    weights = np.maximum(popularity, 0).astype(np.float32)
    if CATEGORY in rows.columns and CATEGORY in item_table.columns:
        by_category = _popular_by_category(item_table[CATEGORY], weights)
        categories, numbers = rows[CATEGORY].to_list(), dict[str, int]()
        for item in np.flatnonzero(group_of < 0).tolist():
            category = categories[item]
            if category in by_category and category not in numbers:
                numbers[category] = len(groups)
                groups.append(by_category[category])
            group_of[item] = numbers.get(category, -1)
    if (group_of < 0).any():
        group_of[group_of < 0] = len(groups)
        groups.append(_weighed(np.arange(len(weights), dtype=np.int64), weights))
    return Neighbours(tuple(groups), group_of)


def _popular_by_category(categories: pl.Series, weights: Float32Array) -> dict[str, tuple[Int64Array, Float32Array]]:
    """The most popular items of each category and their weights."""
    table = pl.DataFrame({"category": categories, "weight": weights}).with_row_index("item").drop_nulls("category")
    ranked = table.sort("weight", "item", descending=[True, False]).group_by("category").head(CATEGORY_ITEMS)
    return {
        str(name): _weighed(group["item"].cast(pl.Int64).to_numpy(), group["weight"].to_numpy())
        for (name,), group in ranked.group_by("category")
    }


def _weighed(items: Int64Array, weights: Float32Array) -> tuple[Int64Array, Float32Array]:
    """Items (n,) and their weights (n,); all weigh alike where none weighs anything."""
    return items, weights if weights.any() else np.ones(len(items), dtype=np.float32)
