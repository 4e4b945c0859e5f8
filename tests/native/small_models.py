"""Random trees and models for the kernels' tests, small enough for the plain implementations."""

from __future__ import annotations

import numpy as np

from beamtree.config import Config, ModelSettings, NetworkSpec
from beamtree.data.requests import Histories, Requests
from beamtree.native.attention import AttentionArrays
from beamtree.native.network import Network
from beamtree.retrieval.engine import Engine, SearchingScorer
from beamtree.tree.item_tree import ItemTree
from tests.native.plain_network import Shape, random_weights
from tests.retrieval.numpy_scorer import NumpyScorer


def random_tree(generator: np.random.Generator, *, items: int, vacant: int = 0, branching: int = 2) -> ItemTree:
    at_leaf = np.full(items + vacant, -1, dtype=np.int32)
    at_leaf[generator.choice(items + vacant, items, replace=False)] = generator.permutation(items)
    return ItemTree(branching, at_leaf)


def random_attention(
    generator: np.random.Generator, tree: ItemTree, shape: Shape, *, separate: bool = False
) -> tuple[AttentionArrays, Engine]:
    """The same random network for the kernels, and for the reference search over a score in NumPy."""
    weights = {
        name: array.numpy() for name, array in random_weights(shape, seed=int(generator.integers(1 << 30))).items()
    }
    node_table = generator.normal(size=(tree.num_nodes, shape.width)).astype(np.float32)
    item_table = generator.normal(size=(tree.num_items, shape.width)).astype(np.float32) if separate else None
    settings = ModelSettings(
        embedding_dim=shape.width,
        layers=shape.mlp,
        network=NetworkSpec(
            windows=shape.windows,
            attention_hidden=shape.attention,
            normalisation=shape.normalisation,
            history_table="separate" if separate else "shared",
        ),
    )
    network = Network.pack(weights, windows=shape.windows, normalisation=shape.normalisation)
    tables = {"node_table": node_table} | ({} if item_table is None else {"item_table": item_table})
    named = {f"attention/{name}": array for name, array in (weights | tables).items()}
    engine = Engine(NumpyScorer(named, tree, config=Config(model=settings)), tree)
    assert not isinstance(engine.scorer, SearchingScorer), "the reference search is what the kernels are held to"
    return AttentionArrays(network, node_table, item_table), engine


def asked_by(histories: np.ndarray) -> Requests:
    """Requests of histories (count, positions), padded in front."""
    return Requests(Histories.of_rows(histories))


def random_histories(generator: np.random.Generator, tree: ItemTree, shape: Shape, *, count: int) -> np.ndarray:
    """Histories (count, positions), padded in front to random lengths, the first one empty."""
    histories = generator.integers(0, tree.num_items, (count, shape.history)).astype(np.int32)
    lengths = generator.integers(0, shape.history + 1, count)
    lengths[0] = 0
    histories[np.arange(shape.history) < shape.history - lengths[:, None]] = -1
    return histories
