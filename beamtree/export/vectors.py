"""The learned vectors for other tools: nearest neighbours, clustering, plots. Parquet and NumPy, row for row the same.

nodes.parquet    level, node, item_id (leaves that carry an item), vector; one row for each node, level by level
items.parquet    item_id, level, node, vector (its leaf's), one row for each dense item; history_vector where the model
                 reads histories from a table of their own
                 Both have the attention network's vectors as vector and the tower's as tower_vector, where the model
                 has these parts.
nodes.npy, items.npy, item_histories.npy, tower_nodes.npy, tower_items.npy    those vectors, float32 (rows, size)
node_levels.npy, node_numbers.npy, node_items.npy      level, node, dense item (-1: none) of each row of nodes.npy
item_ids.npy, item_leaves.npy                          raw id and leaf of each row of items.npy
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import polars as pl

from beamtree.artefact import Artefact
from beamtree.errors import ArtefactError, InputError
from beamtree.storage import replace_file
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, AnyArray, Int32Array


def export_vectors(artefact: Artefact, directory: Path) -> list[Path]:
    """Write all files into a folder, each replaced as a whole; gives their paths. ArtefactError where that fails."""
    arrays = _arrays(artefact)
    nodes, items = _node_table(arrays, artefact), _item_table(arrays, artefact)
    writers: dict[str, Callable[[Path], object]] = {
        "nodes.parquet": lambda path: nodes.write_parquet(path),
        "items.parquet": lambda path: items.write_parquet(path),
    }
    writers |= {f"{name}.npy": _array_writer(array) for name, array in arrays.items()}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, writer in writers.items():
            replace_file(directory / name, writer)
    except OSError as error:
        raise ArtefactError(
            f"Could not write to {directory}: {error.strerror or error}. "
            "Give a folder that is writable and has room, then export again."
        ) from error
    return [directory / name for name in writers]


def _arrays(artefact: Artefact) -> dict[str, AnyArray]:
    tree, attention, tower = artefact.tree, artefact.part("attention"), artefact.part("tower")
    if not attention and not tower:
        raise InputError(
            "This model has no vectors: its score is counted memory alone. Fit one with attention or a tower (a preset "
            "other than instant), or ask this one for similar items."
        )
    levels = np.repeat(np.arange(tree.height + 1, dtype=np.int32), tree.level_sizes)
    arrays: dict[str, AnyArray] = {
        "node_levels": levels,
        "node_numbers": np.arange(tree.num_nodes) - tree.level_offsets[levels],
        "node_items": _items_of_nodes(tree),
        "item_ids": _plain(artefact.items.ids),
        "item_leaves": tree.leaf_of_item,
    }
    for prefix, weights in (("", attention), ("tower_", tower)):
        if weights:
            arrays[f"{prefix}nodes"] = np.asarray(weights["node_table"], dtype=np.float32)
            arrays[f"{prefix}items"] = arrays[f"{prefix}nodes"][tree.level_offsets[tree.height] + tree.leaf_of_item]
    if "item_table" in attention:
        arrays["item_histories"] = np.asarray(attention["item_table"], dtype=np.float32)
    return arrays


def _items_of_nodes(tree: ItemTree) -> Int32Array:
    inner = np.full(tree.level_offsets[tree.height], NOTHING, dtype=np.int32)
    return np.concatenate([inner, tree.item_at_leaf])


def _plain(ids: pl.Series) -> AnyArray:
    """Raw ids without Python objects, so that no reader needs pickle."""
    return ids.to_numpy() if ids.dtype == pl.Int64 else np.array(ids.to_list(), dtype=np.str_)


def _node_table(arrays: Mapping[str, AnyArray], artefact: Artefact) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "level": arrays["node_levels"],
            "node": arrays["node_numbers"],
            "item_id": artefact.items.decode(arrays["node_items"]),
            **_columns(arrays, nodes="vector", tower_nodes="tower_vector"),
        }
    )


def _item_table(arrays: Mapping[str, AnyArray], artefact: Artefact) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "item_id": artefact.items.ids,
            "level": np.full(artefact.tree.num_items, artefact.tree.height, dtype=np.int32),
            "node": arrays["item_leaves"].astype(np.int64),
            **_columns(arrays, items="vector", item_histories="history_vector", tower_items="tower_vector"),
        }
    )


def _columns(arrays: Mapping[str, AnyArray], **names: str) -> dict[str, AnyArray]:
    """Those of some arrays that the model has, by the name of their column."""
    return {column: arrays[name] for name, column in names.items() if name in arrays}


def _array_writer(array: AnyArray) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as stream:
            np.save(stream, array, allow_pickle=False)

    return write
