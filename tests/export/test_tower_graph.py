"""The exported tower gives what the torch scorer gives, alone and beside the other parts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from beamtree.artefact import Artefact
from beamtree.config import Config
from beamtree.export.onnx import export_onnx
from beamtree.model.memory import MemoryWeights
from beamtree.model.torch_scorer import build_torch_scorer
from beamtree.tree.item_tree import ItemTree
from tests.export.exported import assert_same_up_to_ties, random_artefact, run, search
from tests.model.fresh_tower import make_tower
from tests.retrieval.test_memory_search import random_memory
from tests.small import Arrays, model_settings, nested, random_histories, random_tree, weights_of

ENCODERS = ["gru", "self-attention"]
TREE = random_tree(53, branching=2, seed=3, num_leaves=61)


def tower_weights(tree: ItemTree, config: Config, *, seed: int) -> Arrays:
    """Weights of which none has its special first value, named as in a model."""
    generator = np.random.default_rng(seed)
    weights = weights_of(make_tower(tree, config, torch.Generator().manual_seed(seed)))
    for name, array in weights.items():
        if array.dtype == np.float32:
            weights[name] = (array + generator.normal(scale=0.3, size=array.shape)).astype(np.float32)
    return {f"tower/{name}": array for name, array in weights.items()}


def memory_weights(tree: ItemTree) -> Arrays:
    memory = random_memory(
        tree.num_items, seed=3, weights=MemoryWeights(0.9, 0.4, 0.05, company=0.7), followers=min(12, tree.num_items)
    )
    return {f"memory/{name}": array for name, array in memory.arrays().items()}


def artefact_of(
    parts: str, *, tree: ItemTree = TREE, seed: int = 1, model: dict[str, Any] | None = None, **estimator: Any
) -> Artefact:
    """A model of these parts, named in one string, with a tower of the sizes that the estimator's settings name."""
    artefact = random_artefact(model_settings(**(model or {})), tree, seed=seed)
    length = artefact.config.model.attention_history
    sizes = nested({"estimator": {"width": 6, "layers": 2} | estimator})
    decided = {"shuffle_ties": False, "history_length": length}
    config = Config.resolve({**artefact.config.model_dump(), **sizes, "decided": decided})
    arrays = {**artefact.weights, **tower_weights(tree, config, seed=seed), **memory_weights(tree)}
    kept = {name: array for name, array in arrays.items() if name.split("/")[0] in parts.split()}
    return replace(artefact, config=config, weights=kept)


def assert_exported_as_judged(artefact: Artefact, path: Path, *, k: int = 5, beam_width: int = 7) -> int:
    """The same items and scores as the torch scorer's for histories of all lengths, the empty one among them.

    Tells how many different answers there are.
    """
    length = artefact.config.model.attention_history + 3
    generator = np.random.default_rng(1)
    histories = random_histories(40, length=length, num_items=artefact.tree.num_items, generator=generator)
    export_onnx(artefact, path, k=k, beam_width=beam_width)
    found = search(artefact, histories, k=k, beam_width=beam_width, make_scorer=build_torch_scorer)
    assert_same_up_to_ties(run(path, histories), found)
    return len({tuple(row) for row in found.items})


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("parts", ["tower", "tower memory", "tower attention", "tower memory attention"])
@pytest.mark.parametrize(("num_items", "branching", "vacant"), [(37, 2, 0), (64, 2, 0), (50, 3, 9), (23, 5, 40)])
def test_the_same_items_as_the_torch_scorer(
    tmp_path: Path, encoder: str, parts: str, num_items: int, branching: int, vacant: int
) -> None:
    tree = random_tree(num_items, branching=branching, seed=num_items, num_leaves=num_items + vacant)
    assert assert_exported_as_judged(artefact_of(parts, tree=tree, encoder=encoder), tmp_path / "model.onnx") > 15


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("seed", range(8))
def test_random_sizes(tmp_path: Path, encoder: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    layers, num_items = (int(generator.integers(1, end)) for end in (4, 200))
    tree = random_tree(num_items, branching=int(generator.integers(2, 7)), seed=seed, num_leaves=num_items + 5)
    artefact = artefact_of(
        "tower",
        tree=tree,
        seed=seed,
        model={"windows": (1,) * int(generator.integers(1, 15))},
        width=int(generator.integers(6, 20)),
        layers=layers,
        encoder=encoder,
    )
    k, beam_width = (int(value) for value in generator.integers(1, 20, size=2))
    assert_exported_as_judged(artefact, tmp_path / "model.onnx", k=k, beam_width=beam_width)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_sizes_are_those_of_the_arrays(tmp_path: Path, encoder: str) -> None:
    artefact = artefact_of("tower", encoder=encoder)
    other = Config.resolve({**artefact.config.model_dump(), "estimator": {"width": 8, "recipe": {"layers": 1}}})
    assert assert_exported_as_judged(replace(artefact, config=other), tmp_path / "model.onnx") > 15


@pytest.mark.parametrize("levels", [1, 2, 4, 99])
@pytest.mark.parametrize("parts", ["attention", "tower attention", "memory attention", "tower memory attention"])
def test_attention_scores_the_last_levels_alone(tmp_path: Path, parts: str, levels: int) -> None:
    """Where no part scores a level, all its nodes are equal."""
    artefact = artefact_of(parts, model={"attention_levels": levels})
    assert_exported_as_judged(artefact, tmp_path / "model.onnx")


def test_where_attention_scores_makes_a_difference(tmp_path: Path) -> None:
    histories = random_histories(20, length=5, num_items=53, generator=np.random.default_rng(0))
    answers = []
    for number, levels in enumerate((1, None)):
        artefact, path = artefact_of("tower attention", model={"attention_levels": levels}), tmp_path / f"{number}"
        export_onnx(artefact, path, k=5, beam_width=5)
        answers.append(run(path, histories)["items"])
    assert (answers[0] != answers[1]).any()


@pytest.mark.parametrize(("encoder", "operator"), [("gru", "GRU"), ("self-attention", "Softmax")])
def test_the_encoder_runs_once_per_request(tmp_path: Path, encoder: str, operator: str) -> None:
    """Two layers take two of their operators, and all levels of the tree take no more."""
    export_onnx(artefact_of("tower", encoder=encoder), tmp_path / "model.onnx", k=5, beam_width=5)
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    scan = next(node for node in onnx.load(tmp_path / "model.onnx").graph.node if node.op_type == "Scan")
    body = next(attribute.g for attribute in scan.attribute if attribute.name == "body")
    operators = [node.op_type for node in body.node]
    assert operators.count(operator) == 2
    assert operators.count("TopK") > 4


def test_half_precision_tables_stay_half(tmp_path: Path) -> None:
    artefact = artefact_of("tower")
    table = artefact.weights["tower/node_table"].astype(np.float16)
    half, rounded = (
        replace(artefact, weights={**artefact.weights, "tower/node_table": table.astype(kind)})
        for kind in (np.float16, np.float32)
    )
    for name, each in (("half", half), ("rounded", rounded)):
        export_onnx(each, tmp_path / name, k=5)
    assert (tmp_path / "half").stat().st_size < (tmp_path / "rounded").stat().st_size - 0.7 * table.nbytes
    histories = random_histories(20, length=5, num_items=53, generator=np.random.default_rng(0))
    found, expected = (run(tmp_path / name, histories)["scores"] for name in ("half", "rounded"))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("parts", ["attention", "tower", "tower memory attention"])
def test_what_is_no_item_is_left_out_of_a_history(tmp_path: Path, parts: str) -> None:
    export_onnx(artefact_of(parts), tmp_path / "model.onnx", k=5)
    with_gaps = np.array([[9, 7, -1, 3, 99, 4, -8, 5], [-1, 1, 2, 3, 4, 5, 53, 6], [60, -1, 70, 8, -1, -1, 2**40, -1]])
    without = np.array([[-1, -1, -1, 9, 7, 3, 4, 5], [-1, -1, 1, 2, 3, 4, 5, 6], [-1, -1, -1, -1, -1, -1, -1, 8]])
    found, expected = (run(tmp_path / "model.onnx", histories) for histories in (with_gaps, without))
    np.testing.assert_array_equal(found["items"], expected["items"])
    np.testing.assert_array_equal(found["scores"], expected["scores"])
