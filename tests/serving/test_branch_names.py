"""Names of branches, on a tree of eight items in the order of their ids."""

import numpy as np
import polars as pl

from beamtree.serving.branch_names import BranchNames
from beamtree.tree.build import plant
from beamtree.tree.item_tree import ItemTree

TITLES = ["Alien", "Brazil", "Casablanca", "Duck Soup", "Eraserhead", "Fargo", "Gilda", "High Noon"]
POPULARITY = np.array([5, 9, 1, 2, 3, 8, 4, 7], dtype=np.int64)


def tree() -> ItemTree:
    return plant(np.arange(8, dtype=np.int32), branching=2)


def names_of(categories: list[str | None] | None, *, titles: list[str | None] | None = None) -> BranchNames:
    table = pl.DataFrame({"item_id": range(8)})
    if categories is not None:
        table = table.with_columns(category=pl.Series(categories, dtype=pl.String))
    if titles is not None:
        table = table.with_columns(title=pl.Series(titles, dtype=pl.String))
    return BranchNames(tree(), table, popularity=POPULARITY)


def test_categories_that_are_frequent_here_and_rare_elsewhere_come_first() -> None:
    names = names_of(["War", "War", "Drama", "Drama", "Drama", "Drama", "Crime", "Crime"], titles=None)
    assert names.name(1, 0) == "War"
    assert names.name(1, 1) == "Crime"


def test_a_single_typical_category_is_told_apart_by_its_most_popular_title() -> None:
    names = names_of(["War", "War", "War", "War", *["Drama"] * 4], titles=[*TITLES])
    assert names.name(1, 0) == "War · Brazil"
    assert names.name(1, 1) == "Drama · Fargo"
    assert names.name(2, 1) == "War · Duck Soup"


def test_a_branch_like_the_whole_catalogue_is_named_by_popular_titles() -> None:
    names = names_of(["War", "Drama"] * 4, titles=[*TITLES])
    assert names.name(1, 0) == "Brazil · Alien"
    assert names.name(3, 6) == "Gilda"


def test_gaps_in_the_item_table() -> None:
    assert names_of(None).name(1, 0) == ""
    assert names_of([None] * 8).name(1, 0) == ""
    assert names_of(None, titles=["Alien", None, None, None, *TITLES[4:]]).name(1, 0) == "Alien"
    assert names_of(None, titles=["An endless title " * 4] * 8).name(3, 0) == "An endless title An endless t…"
