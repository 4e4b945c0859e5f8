"""Before anything is learned: what the log says of the items, and how they stand at the leaves of the first tree."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Spans
from beamtree.errors import SettingsError
from beamtree.training.randomness import numpy_generator
from beamtree.tree.build import category_order, clustering_order, plant, random_order
from beamtree.tree.cooccurrence import cooccurrence_vectors
from beamtree.tree.item_tree import ItemTree

MOST_CLUSTERED_ITEMS = 200_000
"""Clustering runs one k-means for each inner node: minutes at this size. Larger catalogues need to ask for it."""


def item_vectors(dataset: Dataset, train: Spans, *, config: Config) -> npt.NDArray[np.float32] | None:
    """Unit vectors (items, size) of who interacted with what, where the settings start from them; else None."""
    if first_order(dataset, config=config) != "clustering" and config.model.first_vectors != "cooccurrence":
        return None
    return cooccurrence_vectors(
        dataset.sequences,
        train,
        num_items=len(dataset.items),
        size=config.model.embedding_dim,
        generator=numpy_generator(config.training.seed, "item vectors"),
    )


def initial_tree(
    dataset: Dataset,
    vectors: npt.NDArray[np.float32] | None,
    *,
    config: Config,
    on_step: Callable[[], None] = lambda: None,
) -> ItemTree:
    """The first tree, in the order that the settings name. vectors: what `item_vectors` gave.

    on_step: called at each step of a clustering; it may raise to stop.
    """
    generator = numpy_generator(config.training.seed, "leaves")
    num_items, branching = len(dataset.items), config.tree.branching
    match first_order(dataset, config=config):
        case "random":
            order = random_order(num_items, generator=generator)
        case "category":
            order = category_order(dataset.item_table["category"], generator=generator)
        case "clustering":
            assert vectors is not None
            order = clustering_order(vectors, branching=branching, generator=generator, on_step=on_step)
    return plant(order, branching=branching)


def first_order(dataset: Dataset, *, config: Config) -> Literal["random", "category", "clustering"]:
    """Which first order of the leaves to take; SettingsError where it needs categories and there are none."""
    has_categories = dataset.item_table["category"].null_count() < len(dataset.item_table)
    order = config.tree.order
    if order == "auto":
        if len(dataset.items) <= MOST_CLUSTERED_ITEMS:
            return "clustering"
        return "category" if has_categories else "random"
    if order == "category" and not has_categories:
        raise SettingsError(
            "tree.order = 'category' needs an item table with a column 'category'. Give one with --items, or choose "
            "tree.order = 'clustering' or 'random'."
        )
    return order
