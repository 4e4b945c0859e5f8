"""The first tree: what each order of its leaves knows of the items, and what decides it."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.split import split_none
from beamtree.fitting.first_tree import Planted, plant_first_tree
from beamtree.tree.item_tree import ItemTree
from tests.small import small_config, two_group_log

GROUP = 25


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Two groups of items that no user mixes, each a category of its own."""
    names = [f"{group}{item}" for group in "ab" for item in range(GROUP)]
    categories = pl.DataFrame({"item_id": names, "category": ["A"] * GROUP + ["B"] * GROUP})
    log = two_group_log(users_per_group=40, items_per_group=GROUP)
    return prepare_dataset(log, items=categories, min_interactions=2)


def first_tree(dataset: Dataset, **sections: Any) -> ItemTree:
    """The first tree under these settings."""
    return planted(dataset, **sections).tree


def planted(dataset: Dataset, **sections: Any) -> Planted:
    return plant_first_tree(dataset, split_none(dataset.sequences).train, config=small_config(**sections))


@pytest.mark.parametrize("order", ["auto", "category", "clustering"])
def test_orders_that_know_something_put_each_group_below_one_child_of_the_root(dataset: Dataset, order: str) -> None:
    tree = first_tree(dataset, tree={"order": order})
    below = tree.item_ancestors(np.arange(2 * GROUP), 1)
    assert len(set(below[:GROUP].tolist())) == len(set(below[GROUP:].tolist())) == 1
    assert below[0] != below[GROUP]


def test_the_first_tree_follows_seed_and_branching(dataset: Dataset) -> None:
    def leaves(**changes: Any) -> list[int]:
        tree = {"order": "random", "branching": changes.get("branching", 2)}
        planted = first_tree(dataset, tree=tree, training={"seed": changes.get("seed", 0)})
        order: list[int] = planted.item_at_leaf.tolist()
        return order

    assert leaves() == leaves()
    assert leaves(seed=1) != leaves()
    wide = first_tree(dataset, tree={"order": "random", "branching": 5})
    assert (wide.branching, wide.height) == (5, 3)


@pytest.mark.parametrize("order", ["random", "category", "clustering"])
def test_vectors_to_start_from_do_not_depend_on_the_order_of_the_leaves(dataset: Dataset, order: str) -> None:
    assert planted(dataset, tree={"order": order}, model={"embedding_init": "random"}).first_vectors is None
    vectors = planted(dataset, tree={"order": order}, model={"embedding_init": "cooccurrence"}).first_vectors
    assert vectors is not None
    alike = vectors @ vectors.T
    assert alike[:GROUP, :GROUP].mean() > 0.5 > 0.1 > np.abs(alike[:GROUP, GROUP:]).mean()
