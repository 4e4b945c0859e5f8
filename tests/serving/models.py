"""Models with random weights, made without torch."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from beamtree.artefact import Artefact, save_artefact
from beamtree.config import Config, ModelSettings
from beamtree.data.sequences import Sequences
from beamtree.data.split import Spans
from beamtree.model.memory import Memory
from beamtree.tree.build import plant, random_order
from beamtree.tree.item_tree import ItemTree

TINY: dict[str, dict[str, Any]] = {
    "model": {"embedding_dim": 4, "layers": [8, 6, 4], "network": {"windows": [4, 2, 1], "attention_hidden": 3}},
    "data": {"min_held_out": 2},
    "decided": {"shuffle_ties": False},
    "retrieval": {"beam_width": 8, "exclude_seen": True},
}


def random_weights(
    settings: ModelSettings, tree: ItemTree, *, generator: np.random.Generator
) -> dict[str, npt.NDArray[np.float32]]:
    """Every array of a network, drawn at random."""
    size, hidden, windows = settings.embedding_dim, settings.network.attention_hidden, len(settings.windows)
    widths = [windows * size + size, *settings.layers, 1]
    shapes: dict[str, tuple[int, ...]] = {
        "node_table": (tree.num_nodes, size),
        "attention.hidden.weight": (hidden, 3 * size),
        "attention.hidden.bias": (hidden,),
        "attention.hidden_slope": (1,),
        "attention.output.weight": (1, hidden),
        "attention.output.bias": (1,),
        "attention.output_slope": (1,),
        "mlp.slopes": (3,),
    }
    if settings.network.history_table == "separate":
        shapes["item_table"] = (tree.num_items, size)
    for layer in range(4):
        shapes[f"mlp.{layer}.weight"] = (widths[layer + 1], widths[layer])
        shapes[f"mlp.{layer}.bias"] = (widths[layer + 1],)
    for layer in range(3):
        shapes[f"norm.{layer}.weight"] = shapes[f"norm.{layer}.bias"] = (widths[layer + 1],)
    return {f"attention/{name}": generator.normal(0.0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def random_tower(tree: ItemTree, *, generator: np.random.Generator, width: int = 4) -> dict[str, npt.NDArray[Any]]:
    """A tower of one block with two heads that reads the latest six items, as the arrays of its part."""
    shapes: dict[str, tuple[int, ...]] = {
        "node_table": (tree.num_nodes, width),
        "encoder.layers.0.recency": (2, 6),
        "encoder.layers.0.queries_keys_values.weight": (3 * width, width),
        "encoder.layers.0.queries_keys_values.bias": (3 * width,),
        "encoder.layers.0.merge.weight": (width, width),
        "encoder.layers.0.merge.bias": (width,),
        "encoder.layers.0.widen.weight": (4 * width, width),
        "encoder.layers.0.widen.bias": (4 * width,),
        "encoder.layers.0.narrow.weight": (width, 4 * width),
        "encoder.layers.0.narrow.bias": (width,),
    }
    for norm in ("layers.0.attention_norm", "layers.0.network_norm", "final_norm"):
        shapes[f"encoder.{norm}.weight"] = shapes[f"encoder.{norm}.bias"] = (width,)
    arrays = {f"tower/{name}": generator.normal(0.0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    return {**arrays, "tower/weight": np.array(4.0, dtype=np.float32)}


def random_memory(num_items: int, *, generator: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Memory counted in random sequences, as the arrays of its part."""
    items = generator.integers(0, num_items, size=40 * num_items).astype(np.int32)
    offsets = np.arange(0, len(items) + 1, 40)
    users = np.arange(num_items, dtype=np.int32)
    memory = Memory.count(
        Sequences(items, offsets),
        Spans(users, offsets[:-1], offsets[1:]),
        num_items=num_items,
        window=3,
    )
    return {f"memory/{name}": array for name, array in memory.arrays().items()}


def random_artefact(
    num_items: int,
    *,
    seed: int = 0,
    text_ids: bool = False,
    settings: dict[str, dict[str, Any]] | None = None,
    parts: tuple[str, ...] = ("attention",),
) -> Artefact:
    """A model over items 100, 101, ... (or 'i/100', ...), in three categories, with years, tags and titles."""
    generator = np.random.default_rng(seed)
    config = Config.resolve(settings or TINY)
    tree = plant(random_order(num_items, generator=generator), branching=2)
    weights: dict[str, npt.NDArray[Any]] = {**random_weights(config.model, tree, generator=generator)}
    popularity = generator.permutation(num_items).astype(np.int64)
    if "memory" in parts:
        weights |= random_memory(num_items, generator=generator)
    if "tower" in parts:
        weights |= random_tower(tree, generator=generator)
    numbers = np.arange(num_items)
    item_table = pl.DataFrame(
        {
            "item_id": [f"i/{100 + number}" for number in numbers] if text_ids else numbers + 100,
            "category": [("Drama", "Comedy", "War")[number % 3] for number in numbers],
            "title": [f"Title {number}" for number in numbers],
            "year": 1950 + numbers % 50,
            "tags": [["even"] if number % 2 == 0 else ["odd", "strange"] for number in numbers],
            "price": [None if number % 5 == 0 else number / 4 for number in numbers],
        }
    )
    return Artefact(
        config=config,
        weights={name: array for name, array in weights.items() if name.partition("/")[0] in parts},
        tree=tree,
        popularity=popularity,
        item_table=item_table,
        data_fingerprint="",
        metrics={"test": {"recall@20": 0.5}},
    )


def save_model(directory: Path, num_items: int = 60, **choices: Any) -> Artefact:
    """Write a random model to a folder."""
    artefact = random_artefact(num_items, **choices)
    save_artefact(directory, artefact)
    return artefact
