"""Vectors of a tree small enough to draw, found again in every file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from beamtree.errors import ArtefactError, InputError
from beamtree.export.vectors import export_vectors
from beamtree.tree.item_tree import ItemTree
from tests.export.exported import random_artefact
from tests.small import model_settings

TREE = ItemTree(2, np.array([2, -1, 0, 1], dtype=np.int32))
"""One root, two inner nodes, four leaves; items 2, nothing, 0, 1 on them."""


def test_nodes(tmp_path: Path) -> None:
    artefact = random_artefact(model_settings(), TREE, seed=0, text_ids=True)
    export_vectors(artefact, tmp_path)
    table = artefact.weights["attention/node_table"]
    nodes = pl.read_parquet(tmp_path / "nodes.parquet")
    assert nodes["level"].to_list() == [0, 1, 1, 2, 2, 2, 2]
    assert nodes["node"].to_list() == [0, 0, 1, 0, 1, 2, 3]
    assert nodes["item_id"].to_list() == [None, None, None, "i9", None, "i7", "i8"]
    np.testing.assert_array_equal(nodes["vector"].to_numpy(), table)
    np.testing.assert_array_equal(np.load(tmp_path / "nodes.npy"), table)
    assert np.load(tmp_path / "node_levels.npy").tolist() == nodes["level"].to_list()
    assert np.load(tmp_path / "node_numbers.npy").tolist() == nodes["node"].to_list()
    assert np.load(tmp_path / "node_items.npy").tolist() == [-1, -1, -1, 2, -1, 0, 1]


@pytest.mark.parametrize(("text_ids", "ids"), [(True, ["i7", "i8", "i9"]), (False, [7, 8, 9])])
def test_items(tmp_path: Path, *, text_ids: bool, ids: list[int | str]) -> None:
    artefact = random_artefact(model_settings(), TREE, seed=0, text_ids=text_ids)
    export_vectors(artefact, tmp_path)
    leaves = artefact.weights["attention/node_table"][3:]
    items = pl.read_parquet(tmp_path / "items.parquet")
    assert items.columns == ["item_id", "level", "node", "vector"]
    assert items["item_id"].to_list() == ids
    assert items["level"].to_list() == [2, 2, 2]
    assert items["node"].to_list() == [2, 3, 0]
    np.testing.assert_array_equal(items["vector"].to_numpy(), leaves[[2, 3, 0]])
    np.testing.assert_array_equal(np.load(tmp_path / "items.npy"), leaves[[2, 3, 0]])
    assert np.load(tmp_path / "item_ids.npy", allow_pickle=False).tolist() == ids
    assert np.load(tmp_path / "item_leaves.npy").tolist() == [2, 3, 0]


def test_a_table_of_its_own_for_histories(tmp_path: Path) -> None:
    artefact = random_artefact(model_settings(history_table="separate"), TREE, seed=0)
    written = export_vectors(artefact, tmp_path)
    assert sorted(written) == sorted(tmp_path.iterdir())
    items = pl.read_parquet(tmp_path / "items.parquet")
    np.testing.assert_array_equal(items["history_vector"].to_numpy(), artefact.weights["attention/item_table"])
    np.testing.assert_array_equal(np.load(tmp_path / "item_histories.npy"), artefact.weights["attention/item_table"])


def test_a_tower_has_vectors_beside_those_of_attention_or_alone(tmp_path: Path) -> None:
    artefact = random_artefact(model_settings(), TREE, seed=0)
    table = np.arange(21, dtype=np.float32).reshape(7, 3)
    both = replace(artefact, weights={**artefact.weights, "tower/node_table": table})
    for model, columns in (
        (both, ["vector", "tower_vector"]),
        (replace(both, weights={"tower/node_table": table}), ["tower_vector"]),
    ):
        folder = tmp_path / str(len(columns))
        assert sorted(export_vectors(model, folder)) == sorted(folder.iterdir())
        nodes, items = (pl.read_parquet(folder / f"{name}.parquet") for name in ("nodes", "items"))
        assert nodes.columns == ["level", "node", "item_id", *columns]
        assert items.columns == ["item_id", "level", "node", *columns]
        np.testing.assert_array_equal(nodes["tower_vector"].to_numpy(), table)
        np.testing.assert_array_equal(items["tower_vector"].to_numpy(), table[[5, 6, 3]])
        np.testing.assert_array_equal(np.load(folder / "tower_nodes.npy"), table)
        np.testing.assert_array_equal(np.load(folder / "tower_items.npy"), table[[5, 6, 3]])


def test_a_model_without_vectors_says_what_to_do(tmp_path: Path) -> None:
    artefact = random_artefact(model_settings(), TREE, seed=0)
    with pytest.raises(InputError, match=r"counted memory alone\. Fit one with attention or a tower"):
        export_vectors(replace(artefact, weights={}), tmp_path)


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ArtefactError, match="Give a folder"):
        export_vectors(random_artefact(model_settings(), TREE, seed=0), tmp_path / "taken")
