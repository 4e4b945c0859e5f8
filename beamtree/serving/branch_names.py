"""Short names for nodes of the tree: the categories typical of the items below, and popular titles."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from beamtree.data.columns import CATEGORY, TITLE
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, AnyArray, BoolArray, Int32Array, Int64Array

MAX_WORDS = 2
"""Categories and titles in a name."""

MIN_SHARE = 0.05
"""Of the items below a node: a rarer category does not name it."""

MIN_LIFT = 1.15
"""Over its share of the catalogue: a category that is about as frequent everywhere does not name a node."""

TITLE_CHARACTERS = 30
SEPARATOR = " · "


class BranchNames:
    """Names of the nodes of one tree. popularity: (items,), by which titles are chosen where no category is typical.

    How typical a category is: share * ln(share / share in the catalogue), its term of the Kullback-Leibler divergence.
    """

    def __init__(self, tree: ItemTree, item_table: pl.DataFrame, *, popularity: AnyArray) -> None:
        self._tree = tree
        self._popularity = popularity
        self._categories: list[str] = []
        self._category_of_item: Int32Array | None = None
        self._titles = item_table[TITLE] if TITLE in item_table.columns else None
        if CATEGORY in item_table.columns and item_table[CATEGORY].null_count() < len(item_table):
            known = item_table[CATEGORY].cast(pl.String)
            self._categories = known.drop_nulls().unique().sort().to_list()
            places = {name: place for place, name in enumerate(self._categories)}
            codes = known.replace_strict(places, default=NOTHING, return_dtype=pl.Int32)
            self._category_of_item = codes.to_numpy().astype(np.int32)
            self._shares = _counts(self._category_of_item, len(self._categories)) / max(1, len(known))

    def name(self, level: int, node: int) -> str:
        """The name of a node; empty where the item table has neither categories nor titles."""
        first, end = (int(bound) for bound in self._tree.leaf_ranges(node, level))
        items = self._tree.item_at_leaf[first:end]
        items = items[items >= 0]
        if not len(items):
            return ""
        inside = 0 < level < self._tree.height
        typical = self._typical_categories(items) if inside else []
        if not typical:
            return SEPARATOR.join(self._popular_titles(items)[:MAX_WORDS])
        of_typical = items[self._has_category(items, typical[0])]
        words = [*(self._categories[place] for place in typical), *self._popular_titles(of_typical)]
        return SEPARATOR.join(words[:MAX_WORDS])

    def _typical_categories(self, items: Int32Array) -> list[int]:
        """Codes of the typical categories of some items, the most typical first."""
        if self._category_of_item is None:
            return []
        shares = _counts(self._category_of_item[items], len(self._categories)) / len(items)
        lift = shares / np.maximum(self._shares, 1e-12)
        typical = np.flatnonzero((shares >= MIN_SHARE) & (lift >= MIN_LIFT))
        best = typical[np.argsort(-shares[typical] * np.log(lift[typical]), kind="stable")]
        return [int(place) for place in best[:MAX_WORDS]]

    def _has_category(self, items: Int32Array, place: int) -> BoolArray:
        assert self._category_of_item is not None
        return np.asarray(self._category_of_item[items] == place)

    def _popular_titles(self, items: Int32Array) -> Sequence[str]:
        """The titles of the most popular items, best first; a leaf has one."""
        if self._titles is None:
            return []
        best = items[np.lexsort((items, -self._popularity[items]))[: 4 * MAX_WORDS]]
        known = [str(title).strip() for title in self._titles.gather(best).drop_nulls()]
        return [_shortened(title) for title in known if title]


def _counts(categories: Int32Array, num_categories: int) -> Int64Array:
    return np.bincount(categories[categories >= 0], minlength=num_categories)


def _shortened(title: str) -> str:
    return title if len(title) <= TITLE_CHARACTERS else f"{title[: TITLE_CHARACTERS - 1].rstrip()}…"
