"""The exported search gives what the engine gives, for every kind of model, tree and history."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from beamtree.errors import ArtefactError, InputError
from beamtree.export.onnx import export_onnx
from beamtree.model.memory import MemoryWeights
from tests.export.exported import assert_same_up_to_ties, open_session, random_artefact, run, search
from tests.retrieval.test_memory_search import random_memory
from tests.small import model_settings, random_histories, random_tree


@pytest.mark.parametrize("history_table", ["shared", "separate"])
@pytest.mark.parametrize("normalisation", ["none", "layer", "batch"])
@pytest.mark.parametrize(("num_items", "branching", "vacant"), [(37, 2, 0), (64, 2, 0), (50, 3, 9), (23, 5, 40)])
def test_the_same_items_as_the_engine(
    tmp_path: Path, *, history_table: str, normalisation: str, num_items: int, branching: int, vacant: int
) -> None:
    settings = model_settings(history_table=history_table, normalisation=normalisation)
    tree = random_tree(num_items, branching=branching, seed=num_items, num_leaves=num_items + vacant)
    artefact = random_artefact(settings, tree, seed=branching)
    export_onnx(artefact, tmp_path / "model.onnx", k=5, beam_width=7)
    histories = random_histories(40, length=5, num_items=num_items, generator=np.random.default_rng(1))
    found = search(artefact, histories, k=5, beam_width=7)
    assert_same_up_to_ties(run(tmp_path / "model.onnx", histories), found)
    assert len({tuple(row) for row in found.items}) > 15


@pytest.mark.parametrize("seed", range(12))
def test_random_shapes(tmp_path: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    windows = tuple(int(length) for length in generator.integers(1, 4, size=generator.integers(1, 5)))
    num_items, length = int(generator.integers(1, 200)), sum(windows)
    settings = model_settings(
        windows=windows,
        embedding_dim=int(generator.integers(1, 9)),
        attention_hidden=int(generator.integers(1, 9)),
        layers=tuple(int(width) for width in generator.integers(4, 10, size=generator.integers(1, 6))),
    )
    num_leaves = num_items + int(generator.integers(0, 30))
    tree = random_tree(num_items, branching=int(generator.integers(2, 7)), seed=seed, num_leaves=num_leaves)
    artefact = random_artefact(settings, tree, seed=seed)
    k, beam_width = (int(value) for value in generator.integers(1, 20, size=2))
    export_onnx(artefact, tmp_path / "model.onnx", k=k, beam_width=beam_width)
    histories = random_histories(20, length=length, num_items=num_items, generator=generator)
    assert_same_up_to_ties(
        run(tmp_path / "model.onnx", histories), search(artefact, histories, k=k, beam_width=beam_width)
    )


def test_equal_scores_go_to_the_lower_leaf(tmp_path: Path) -> None:
    tree = random_tree(40, branching=2, seed=0)
    artefact = random_artefact(model_settings(), tree, seed=0)
    artefact.weights["attention/node_table"][:] = 1.0
    export_onnx(artefact, tmp_path / "model.onnx", k=6, beam_width=8)
    outputs = run(tmp_path / "model.onnx", np.array([[1, 2, 3, 4, 5]]))
    assert outputs["items"].tolist() == [tree.item_at_leaf[:6].tolist()]


def test_equal_leaves_rise_whatever_the_order_of_their_parents(tmp_path: Path) -> None:
    tree = random_tree(40, branching=2, seed=0)
    artefact = random_artefact(model_settings(), tree, seed=0)
    artefact.weights["attention/node_table"][tree.level_offsets[tree.height] :] = 0.0
    export_onnx(artefact, tmp_path / "model.onnx", k=6, beam_width=8)
    histories = random_histories(20, length=5, num_items=40, generator=np.random.default_rng(0))
    items = run(tmp_path / "model.onnx", histories)["items"]
    np.testing.assert_array_equal(items, search(artefact, histories, k=6, beam_width=8).items)
    assert (np.diff(tree.leaf_of_item[items]) > 0).all()


def test_a_catalogue_smaller_than_k(tmp_path: Path) -> None:
    tree = random_tree(3, branching=2, seed=0, num_leaves=5)
    artefact = random_artefact(model_settings(), tree, seed=0, text_ids=True)
    export_onnx(artefact, tmp_path / "model.onnx", k=7, beam_width=2)
    outputs = run(tmp_path / "model.onnx", np.array([[0, 1], [2, -1]]))
    assert outputs["items"].shape == (2, 7)
    assert np.sort(outputs["items"][:, :3]).tolist() == [[0, 1, 2]] * 2
    assert (outputs["items"][:, 3:] == -1).all()
    assert np.isneginf(outputs["scores"][:, 3:]).all()
    assert (outputs["ids"][:, 3:] == "").all()


@pytest.mark.parametrize("text_ids", [False, True])
def test_raw_ids_come_along(tmp_path: Path, *, text_ids: bool) -> None:
    artefact = random_artefact(model_settings(), random_tree(30, branching=2, seed=1), seed=1, text_ids=text_ids)
    export_onnx(artefact, tmp_path / "model.onnx", k=4)
    outputs = run(tmp_path / "model.onnx", np.array([[3, 4, 5]]))
    assert outputs["ids"][0].tolist() == artefact.items.decode(outputs["items"][0]).to_list()
    export_onnx(artefact, tmp_path / "model.onnx", k=4, raw_ids=False)
    assert list(run(tmp_path / "model.onnx", np.array([[3, 4, 5]]))) == ["items", "scores"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reads five items of a history, knows 30."""
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    export_onnx(random_artefact(model_settings(), random_tree(30, branching=2, seed=1), seed=1), path, k=4)
    return path


EXPECTED = np.array([[11, 12, 13, 14, 15], [-1, -1, -1, 14, 15], [-1, -1, -1, -1, -1]])


@pytest.mark.parametrize(
    ("history", "length"),
    [
        ([[11, 12, 13, 14, 15], [14, 15, 0, 0, 0], [0, 0, 0, 0, 0]], [5, 2, 0]),
        ([[7, 8, 11, 12, 13, 14, 15], [14, 15, 0, 0, 0, 0, 0], [0] * 7], [7, 2, 0]),
        ([[11, 12, 13, 14, 15], [-1, -1, -1, 14, 15], [-1] * 5], [5, 5, 5]),
        ([[11, 12, 13, 14, 15], [30, 99, -7, 14, 15], [2**40] * 5], [5, 5, 5]),
        ([[11, 12, 13, 14, 15], [-1, -1, -1, 14, 15], [1] * 5], [99, 99, -3]),
    ],
    ids=["behind", "longer than read", "in front", "unknown items", "impossible lengths"],
)
def test_what_counts_as_history(model: Path, history: list[list[int]], length: list[int]) -> None:
    expected, given = run(model, EXPECTED), run(model, np.array(history), length)
    for name in expected:
        np.testing.assert_array_equal(given[name], expected[name])
    assert len({tuple(row) for row in expected["items"]}) == 3


def test_empty_rows_and_empty_batches(model: Path) -> None:
    nothing = run(model, np.empty((2, 0)))
    np.testing.assert_array_equal(nothing["scores"], run(model, np.full((2, 5), -1))["scores"])
    assert run(model, np.empty((0, 5)))["items"].shape == (0, 4)


def test_each_row_is_answered_as_if_alone(model: Path) -> None:
    histories = random_histories(9, length=5, num_items=30, generator=np.random.default_rng(0))
    together = run(model, histories)
    for row in range(9):
        np.testing.assert_array_equal(run(model, histories[row : row + 1])["scores"][0], together["scores"][row])


def test_half_precision_tables_stay_half(tmp_path: Path) -> None:
    artefact = random_artefact(model_settings(), random_tree(40, branching=2, seed=2), seed=2)
    export_onnx(artefact, tmp_path / "single.onnx", k=5)
    table = artefact.weights["attention/node_table"].astype(np.float16)
    half, rounded = (
        replace(artefact, weights={**artefact.weights, "attention/node_table": table.astype(kind)})
        for kind in (np.float16, np.float32)
    )
    export_onnx(half, tmp_path / "half.onnx", k=5)
    assert (tmp_path / "half.onnx").stat().st_size < (tmp_path / "single.onnx").stat().st_size
    histories = random_histories(20, length=5, num_items=40, generator=np.random.default_rng(0))
    assert_same_up_to_ties(run(tmp_path / "half.onnx", histories), search(rounded, histories, k=5, beam_width=8))


def test_the_file_passes_the_full_check_and_says_what_it_is(model: Path) -> None:
    onnx.checker.check_model(str(model), full_check=True)
    session = open_session(model)
    assert {value.name: (value.type, value.shape) for value in session.get_inputs()} == {
        "history": ("tensor(int64)", ["batch", "entries"]),
        "length": ("tensor(int64)", ["batch"]),
    }
    assert [value.shape for value in session.get_outputs()] == [["batch", 4]] * 3
    facts = session.get_modelmeta().custom_metadata_map
    assert facts == {"beamtree_model": "", "k": "4", "beam_width": "8", "history_length": "5", "num_items": "30"}


def test_the_same_model_gives_the_same_bytes(model: Path, tmp_path: Path) -> None:
    export_onnx(random_artefact(model_settings(), random_tree(30, branching=2, seed=1), seed=1), tmp_path / "m", k=4)
    assert (tmp_path / "m").read_bytes() == model.read_bytes()


@pytest.mark.parametrize(("k", "beam_width"), [(0, 5), (5, 0)])
def test_nothing_to_search_for_is_refused(tmp_path: Path, k: int, beam_width: int) -> None:
    artefact = random_artefact(model_settings(), random_tree(4, branching=2, seed=0), seed=0)
    with pytest.raises(InputError, match="at least 1"):
        export_onnx(artefact, tmp_path / "model.onnx", k=k, beam_width=beam_width)
    assert not list(tmp_path.iterdir())


def test_a_folder_in_the_way_is_refused(tmp_path: Path) -> None:
    artefact = random_artefact(model_settings(), random_tree(4, branching=2, seed=0), seed=0)
    with pytest.raises(ArtefactError, match="path of a file"):
        export_onnx(artefact, tmp_path, k=1)


@pytest.mark.parametrize("parts", ["memory", "attention and memory"])
@pytest.mark.parametrize(("branching", "vacant", "gated"), [(2, 0, False), (3, 11, True)])
def test_counted_memory_is_searched_as_the_engine_does(
    parts: str, branching: int, vacant: int, gated: bool, tmp_path: Path
) -> None:
    tree = random_tree(120, branching=branching, seed=2, num_leaves=120 + vacant)
    artefact = random_artefact(model_settings(), tree, seed=1)
    memory = random_memory(
        120, seed=3, weights=MemoryWeights(0.9, -0.4 if gated else 0.4, 0.05, company=0.7), followers=12
    )
    if gated:
        memory = replace(memory, gates=tuple(np.linspace(0.4, 1.0, tree.height + 1)))
    counted = {f"memory/{name}": array for name, array in memory.arrays().items()}
    weights = counted if parts == "memory" else {**artefact.weights, **counted}
    artefact = replace(artefact, weights=weights)
    histories = random_histories(40, length=33, num_items=120, generator=np.random.default_rng(4))
    for k, beam_width in ((5, 9), (20, 200)):
        path = tmp_path / f"{k}.onnx"
        export_onnx(artefact, path, k=k, beam_width=beam_width)
        assert_same_up_to_ties(run(path, histories), search(artefact, histories, k=k, beam_width=beam_width))


def test_a_part_that_the_graph_does_not_know_is_refused_instead_of_left_out(tmp_path: Path) -> None:
    artefact = random_artefact(model_settings(), random_tree(9, branching=2, seed=0), seed=0)
    artefact = replace(artefact, weights={**artefact.weights, "bias/table": np.zeros((3, 1), dtype=np.float32)})
    with pytest.raises(InputError, match="attention, memory, tower, which the graph knows, got bias beside them"):
        export_onnx(artefact, tmp_path / "model.onnx", k=5)
    assert not list(tmp_path.iterdir())
