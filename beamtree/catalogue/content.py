"""Vectors of new items from the columns of the item table, by what these columns say of the items that are known."""

from collections.abc import Callable

import numpy as np
import polars as pl

from beamtree.artefact import Artefact
from beamtree.data.columns import CATEGORY
from beamtree.data.features import FeatureSchema
from beamtree.model.content import ContentModel
from beamtree.types import Float32Array

FEWEST_ITEMS, MOST_ITEMS = 100, 20_000
"""So many items must be known to learn from; the most popular of very many say enough."""


def content_of(artefact: Artefact, table: str) -> Callable[[pl.DataFrame], Float32Array] | None:
    """From rows of the item table to vectors, in the space of a table of nodes; None where nothing but a category says
    what an item is like, or where there are too few items to learn it from.

    table: the name of the table among the model's weights, such as tower/node_table.
    """
    schema = FeatureSchema.infer(artefact.item_table, artefact.config.log.item_features)
    if all(column.name == CATEGORY for column in schema.columns) or artefact.tree.num_items < FEWEST_ITEMS:
        return None
    tree = artefact.tree
    items = np.sort(np.argsort(-artefact.popularity, kind="stable")[:MOST_ITEMS])
    vectors = artefact.weights[table][int(tree.level_offsets[tree.height]) + tree.leaf_of_item[items]]
    features = schema.encode(artefact.item_table[items])
    model = ContentModel.fit(schema, features, vectors, weights=np.sqrt(artefact.popularity[items] + 1.0))
    return lambda rows: model.vectors(schema.encode(rows))
