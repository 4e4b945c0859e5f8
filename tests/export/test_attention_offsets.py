"""What requests add to the first layer of attention: the same in torch, NumPy, the kernels and ONNX Runtime."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from beamtree import native
from beamtree.artefact import Artefact, load_artefact, save_artefact
from beamtree.config import Config
from beamtree.data.request_features import RequestFeatures
from beamtree.data.requests import Requests
from beamtree.errors import ArtefactError, InputError
from beamtree.export.onnx import export_onnx
from beamtree.model.attention import Attention, attention_reading
from beamtree.model.score import Score
from beamtree.model.torch_scorer import TorchScorer, build_torch_scorer
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.tree.item_tree import ItemTree
from tests.export.exported import assert_same_up_to_ties, open_session
from tests.export.test_request_offsets import (
    EITHER,
    ITEMS,
    READ,
    REQUESTS,
    artefact_of,
    inputs_of,
    learned,
    requests_of,
)
from tests.retrieval.numpy_scorer import NumpyScorer
from tests.small import PlainAttention, model_settings, random_tree

TREE = random_tree(ITEMS, branching=2, seed=1, num_leaves=48)
NORMALISATIONS = pytest.mark.parametrize("normalisation", ["none", "layer", "batch"])


def stirred(read: RequestFeatures, config: Config, tree: ItemTree = TREE) -> Attention:
    """Attention that reads features, in which no number has its special first value."""
    attention = attention_reading(read)(tree, config, torch.Generator().manual_seed(3))
    assert isinstance(attention, Attention)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for tensor in attention.state_dict().values():
            if tensor.is_floating_point():
                tensor += 0.3 * torch.rand(tensor.shape, generator=generator)
    return attention.eval()


def attending(
    read: RequestFeatures, *, normalisation: str = "none", with_tower: bool = False
) -> tuple[Attention, Artefact]:
    """Attention, and a model of it, alone or beside a tower."""
    settings = model_settings(
        layers=(8, 6), normalisation=normalisation, parts=("attention", *(["tower"] if with_tower else []))
    )
    artefact = artefact_of(learned(read), read)
    config = artefact.config.model_copy(update={"model": settings})
    attention = stirred(read, config)
    own = {f"attention/{name}": tensor.numpy() for name, tensor in attention.state_dict().items()}
    weights = own | (dict(artefact.weights) if with_tower else {})
    return attention, replace(artefact, config=config, weights=weights, tree=TREE)


def scores_by(scorer: Any, requests: Requests) -> list[Any]:
    """Scores of all nodes of all levels for every request."""
    prepared = scorer.prepare(requests)
    return [
        prepared.scores(row, level, np.arange(TREE.level_sizes[level]))
        for row in range(len(requests))
        for level in range(TREE.height + 1)
    ]


@EITHER
@NORMALISATIONS
def test_all_score_as_the_formulas_do(read: RequestFeatures, normalisation: str) -> None:
    attention, artefact = attending(read, normalisation=normalisation)
    requests = requests_of(read).take(slice(0, 7))
    expected = scores_by(TorchScorer(Score(TREE, {"attention": PlainAttention(attention)})), requests)
    for make in (build_scorer, build_torch_scorer, NumpyScorer):
        found = scores_by(make(artefact.weights, artefact.tree, config=artefact.config), requests)
        np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), rtol=1e-3, atol=1e-4)
    told = np.concatenate(scores_by(build_scorer(artefact.weights, TREE, config=artefact.config), requests))
    untold = Requests(requests.histories)
    silent = np.concatenate(scores_by(build_scorer(artefact.weights, TREE, config=artefact.config), untold))
    assert np.mean(np.abs(told - silent) > 1e-3) > 0.9, "features change what nodes score"


@EITHER
@NORMALISATIONS
@pytest.mark.parametrize("with_tower", [False, True])
def test_onnx_runtime_finds_what_the_engine_finds(
    read: RequestFeatures, normalisation: str, with_tower: bool, tmp_path: Path
) -> None:
    _, artefact = attending(read, normalisation=normalisation, with_tower=with_tower)
    requests = requests_of(read)
    export_onnx(artefact, tmp_path / "model.onnx", k=5, beam_width=6)
    session = open_session(tmp_path / "model.onnx")
    given: dict[str, Any] = {"history": requests.histories.latest(7).astype(np.int64), "length": np.full(REQUESTS, 7)}
    engine = Engine(build_scorer(artefact.weights, TREE, config=artefact.config), TREE)
    for inputs, asked in ((given, Requests(requests.histories)), (given | inputs_of(requests), requests)):
        outputs = dict(zip(("items", "scores", "ids"), session.run(None, inputs), strict=True))
        assert_same_up_to_ties(outputs, engine.search(asked, k=5, beam_width=6))
    assert "Oslo" in session.get_modelmeta().custom_metadata_map["request_features"] or not read.user


@pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")
def test_a_request_has_the_same_bytes_alone_and_among_others() -> None:
    _, artefact = attending(READ, normalisation="layer", with_tower=True)
    requests = requests_of(READ)
    engine = Engine(build_scorer(artefact.weights, TREE, config=artefact.config), TREE)
    together = engine.search(requests, k=5, beam_width=6)
    for row in range(REQUESTS):
        found = engine.search(requests.take(slice(row, row + 1)), k=5, beam_width=6)
        assert found.scores.tobytes() == together.scores[row].tobytes()


def test_a_saved_model_keeps_its_tables_and_one_with_others_is_refused(tmp_path: Path) -> None:
    _, artefact = attending(READ)
    save_artefact(tmp_path / "model", artefact)
    loaded = load_artefact(tmp_path / "model")
    for name in ("user.embedding", "user.projection", "context.embedding"):
        full = f"attention/offset.{name}"
        np.testing.assert_array_equal(loaded.weights[full], artefact.weights[full])
    save_artefact(tmp_path / "other", replace(artefact, request_features=RequestFeatures(READ.context, READ.user)))
    with pytest.raises(ArtefactError, match=r"rows for the features that attention/offset.user reads"):
        load_artefact(tmp_path / "other")
    narrow = {**artefact.weights, "attention/offset.user.embedding": np.zeros((75, 2), dtype=np.float32)}
    for make in (build_scorer, build_torch_scorer):
        with pytest.raises(
            (ArtefactError, InputError), match=r"offset.user.embedding of shape \(any, 8\), got \(75, 2\)"
        ):
            make(narrow, TREE, config=artefact.config)


def test_a_model_whose_tower_alone_reads_features_is_searched_as_before(tmp_path: Path) -> None:
    """As models were saved before attention read any."""
    _, artefact = attending(READ, with_tower=True)
    tower_alone = {name: array for name, array in artefact.weights.items() if not name.startswith("attention/offset.")}
    save_artefact(tmp_path / "model", replace(artefact, weights=tower_alone))
    loaded = load_artefact(tmp_path / "model")
    requests = requests_of(READ)
    kernels, torch_scores = (
        np.concatenate(scores_by(make(loaded.weights, TREE, config=loaded.config), requests))
        for make in (build_scorer, build_torch_scorer)
    )
    np.testing.assert_allclose(kernels, torch_scores, rtol=1e-3, atol=1e-4)


def test_fresh_tables_are_zero_and_all_else_starts_as_without() -> None:
    """So that features change nothing before they are learned, and models without any start as ever."""
    config = Config(model=model_settings())
    plain, reading = (
        attention_reading(read)(TREE, config, torch.Generator().manual_seed(3)).state_dict()
        for read in (RequestFeatures(), READ)
    )
    assert plain.keys() == {name for name in reading if not name.startswith("offset.")}
    for name, tensor in reading.items():
        assert torch.equal(tensor, plain[name]) if name in plain else not tensor.any(), name
    assert "offset.user.embedding" in reading
    assert reading["offset.user.embedding"].shape == (75, config.model.layers[0])
