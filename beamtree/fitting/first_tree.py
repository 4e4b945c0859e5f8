"""The first tree: its order of the items, and item vectors from the log."""

from collections.abc import Callable
from functools import cache
from typing import Literal, NamedTuple

from beamtree.config import Config
from beamtree.data.cooccurrence import cooccurrence_vectors
from beamtree.data.dataset import Dataset
from beamtree.data.split import Spans
from beamtree.errors import SettingsError
from beamtree.training.randomness import numpy_generator
from beamtree.tree.build import category_order, clustering_order, plant, random_order
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array

MAX_CLUSTERED_ITEMS = 2_000_000
"""Clustering takes minutes at this size. Above it, `auto` takes another order."""


class Planted(NamedTuple):
    """The first tree, and the items' unit vectors (items, size) if embeddings are initialised from them."""

    tree: ItemTree
    first_vectors: Float32Array | None


def plant_first_tree(
    dataset: Dataset,
    train: Spans,
    *,
    config: Config,
    item_vectors: Float32Array | None = None,
    on_step: Callable[[], None] = lambda: None,
) -> Planted:
    """The first tree, in the order that the settings name.

    item_vectors: (items, width), learned vectors to cluster the items by; by default a truncated SVD of the user-item
    matrix. on_step: called at each step; it may raise to stop.
    """
    generator = numpy_generator(config.training.seed, "leaves")
    num_items, branching = len(dataset.items), config.tree.branching

    @cache
    def vectors() -> Float32Array:
        on_step()
        stream = numpy_generator(config.training.seed, "item vectors")
        return cooccurrence_vectors(
            dataset.sequences, train, num_items=num_items, size=config.model.embedding_dim, generator=stream
        )

    match first_order(dataset, config=config):
        case "random":
            order = random_order(num_items, generator=generator)
        case "category":
            order = category_order(dataset.item_table["category"], generator=generator)
        case "clustering":
            points = vectors() if item_vectors is None else item_vectors
            order = clustering_order(points, branching=branching, generator=generator, on_step=on_step)
    starts_near_items = "attention" in config.model.parts and config.model.network.embedding_init == "cooccurrence"
    first_vectors = vectors() if starts_near_items else None
    return Planted(plant(order, branching=branching), first_vectors)


def first_order(dataset: Dataset, *, config: Config) -> Literal["random", "category", "clustering"]:
    """The first order of the leaves; SettingsError if it needs categories and there are none."""
    has_categories = dataset.item_table["category"].null_count() < len(dataset.item_table)
    order = config.tree.order
    if order == "auto":
        if config.model.parts == ("memory",):
            return "random"
        if len(dataset.items) <= MAX_CLUSTERED_ITEMS:
            return "clustering"
        return "category" if has_categories else "random"
    if order == "category" and not has_categories:
        raise SettingsError(
            "tree.order = 'category' needs an item table with a column 'category'. Give one with --items, or choose "
            "tree.order = 'clustering' or 'random'."
        )
    return order
