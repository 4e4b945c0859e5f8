"""What requests add to encoded histories: the same in torch, in the kernels and in ONNX Runtime."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from beamtree import native
from beamtree.artefact import Artefact, load_artefact, save_artefact
from beamtree.data.features import Features, FeatureSchema
from beamtree.data.request_features import RequestFeatures
from beamtree.data.requests import Histories, Requests
from beamtree.errors import ArtefactError, InputError
from beamtree.export.onnx import export_onnx
from beamtree.model.features import RequestVectors
from beamtree.model.next_item import NextItemModel
from beamtree.model.torch_scorer import build_torch_scorer
from beamtree.model.tower import tower_arrays
from beamtree.native.offset_arrays import OffsetArrays
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from tests.export.exported import assert_same_up_to_ties, open_session
from tests.model.fresh_tower import weighted
from tests.small import encoder_settings, random_histories, random_tree, small_config

WIDTH, ITEMS, REQUESTS = 6, 40, 30
USERS = pl.DataFrame(
    {
        "city": ["Oslo", "Rome", None] * 10,
        "tags": [["x"], ["x", "y", "z"], ["y", "z"]] * 10,
        "age": [20.0, 35.0, 61.5] * 10,
        "taste": [[0.5, -1.0, 2.0], None, [1.0, 1.0, 0.0]] * 10,
    },
    schema_overrides={"taste": pl.List(pl.Float32)},
)
CONTEXTS = pl.DataFrame({"device": ["phone", "tablet"] * 15})
READ = RequestFeatures(FeatureSchema.infer(USERS), FeatureSchema.infer(CONTEXTS))
EITHER = pytest.mark.parametrize("read", [READ, RequestFeatures(user=READ.user), RequestFeatures(context=READ.context)])


def learned(read: RequestFeatures, *, encoder: str = "gru") -> NextItemModel:
    """A model in which no number has its special first value."""
    generator = torch.Generator().manual_seed(2)
    settings = encoder_settings(width=WIDTH, encoder=encoder)
    model = NextItemModel(
        settings,
        num_items=ITEMS,
        history_length=5,
        generator=generator,
        offset=RequestVectors.of(read, width=WIDTH),
    )
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn(tensor.shape, generator=generator), alpha=0.5)
    return model.eval()


def artefact_of(model: NextItemModel, read: RequestFeatures) -> Artefact:
    tree = random_tree(ITEMS, branching=2, seed=1, num_leaves=48)
    size = (int(tree.level_offsets[tree.height]), WIDTH)
    inner = np.random.default_rng(3).normal(size=size).astype(np.float32)
    arrays = weighted(tower_arrays(model, tree, inner=inner), 0.7)
    return Artefact(
        config=small_config(model={"parts": ("tower",)}),
        weights={f"tower/{name}": array for name, array in arrays.items()},
        tree=tree,
        popularity=np.ones(ITEMS, dtype=np.int64),
        item_table=pl.DataFrame({"item_id": list(range(ITEMS))}),
        data_fingerprint="",
        request_features=read,
    )


def requests_of(read: RequestFeatures) -> Requests:
    histories = random_histories(REQUESTS, length=7, num_items=ITEMS, generator=np.random.default_rng(0))
    histories[::5] = -1
    return Requests(
        Histories.of_rows(histories),
        user_features=read.user.encode(USERS) if read.user else None,
        context=read.context.encode(CONTEXTS) if read.context else None,
    )


@EITHER
@pytest.mark.parametrize("encoder", ["gru", "self-attention"])
def test_the_kernels_and_torch_score_as_what_was_learned(read: RequestFeatures, encoder: str) -> None:
    model, requests = learned(read, encoder=encoder), requests_of(read)
    artefact = artefact_of(model, read)
    leaves = artefact.tree.leaf_of_item.astype(np.int64)
    expected = 0.7 * model.scores_of(requests)
    for make in (build_scorer, build_torch_scorer):
        prepared = make(artefact.weights, artefact.tree, config=artefact.config).prepare(requests)
        found = np.stack([prepared.scores(row, artefact.tree.height, leaves) for row in range(REQUESTS)])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    unknown = Requests(requests.histories)
    np.testing.assert_array_equal(
        model.scores_of(unknown), model.scores(requests.histories.latest(model.history_length))
    )
    assert np.abs(expected / 0.7 - model.scores_of(unknown)).max(axis=1).min() > 0.1, "all requests say something"


@EITHER
def test_onnx_runtime_finds_what_the_engine_finds(read: RequestFeatures, tmp_path: Path) -> None:
    artefact, requests = artefact_of(learned(read), read), requests_of(read)
    export_onnx(artefact, tmp_path / "model.onnx", k=5, beam_width=6)
    session = open_session(tmp_path / "model.onnx")
    given: dict[str, Any] = {
        "history": requests.histories.latest(7).astype(np.int64),
        "length": np.full(REQUESTS, 7),
    }
    engine = Engine(build_scorer(artefact.weights, artefact.tree, config=artefact.config), artefact.tree)
    alone = Requests(requests.histories)
    for inputs, asked in ((given, alone), (given | inputs_of(requests), requests)):
        outputs = dict(zip(("items", "scores", "ids"), session.run(None, inputs), strict=True))
        assert_same_up_to_ties(outputs, engine.search(asked, k=5, beam_width=6))
    nobody = {name: array[:0] for name, array in (given | inputs_of(requests)).items()}
    assert session.run(None, nobody)[0].shape == (0, 5)
    assert "Oslo" in session.get_modelmeta().custom_metadata_map["request_features"] or not read.user


def inputs_of(requests: Requests) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, features in (("user", requests.user_features), ("context", requests.context)):
        if features is not None:
            found |= {f"{name}_entries": features.entries.astype(np.int64), f"{name}_weights": features.weights}
            found |= {f"{name}_vectors": features.vectors} if features.vectors.shape[1] else {}
    return found


@pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")
def test_neither_threads_nor_other_requests_change_a_byte() -> None:
    from beamtree.native import _kernels

    artefact, requests = artefact_of(learned(READ), READ), requests_of(READ)
    engine = Engine(build_scorer(artefact.weights, artefact.tree, config=artefact.config), artefact.tree)
    together = engine.search(requests, k=5, beam_width=6)
    threads = _kernels.threads()
    try:
        for count in (1, 3):
            _kernels.set_threads(count)
            again = engine.search(requests, k=5, beam_width=6)
            assert again.scores.tobytes() == together.scores.tobytes()
    finally:
        _kernels.set_threads(threads)
    for row in range(REQUESTS):
        found = engine.search(requests.take(slice(row, row + 1)), k=5, beam_width=6)
        assert found.scores.tobytes() == together.scores[row].tobytes()
        assert found.items.tobytes() == together.items[row].tobytes()


def test_a_saved_model_keeps_its_tables_and_one_with_others_is_refused(tmp_path: Path) -> None:
    artefact = artefact_of(learned(READ), READ)
    save_artefact(tmp_path / "model", artefact)
    loaded = load_artefact(tmp_path / "model")
    assert loaded.request_features == READ
    for name in ("user.embedding", "user.projection", "context.embedding"):
        np.testing.assert_array_equal(loaded.weights[f"tower/offset.{name}"], artefact.weights[f"tower/offset.{name}"])
    assert "tower/offset.context.projection" not in loaded.weights
    save_artefact(tmp_path / "other", replace(artefact, request_features=RequestFeatures(READ.context, READ.user)))
    with pytest.raises(
        ArtefactError, match=r"Expected tables of .* rows for the features that tower/offset.user reads"
    ):
        load_artefact(tmp_path / "other")


def test_features_for_other_tables_are_refused() -> None:
    arrays = {name.removeprefix("tower/"): array for name, array in artefact_of(learned(READ), READ).weights.items()}
    offsets = OffsetArrays.of(arrays, width=WIDTH)
    assert offsets is not None
    empty = np.zeros((1, 0), dtype=np.float32)
    beyond = Features(np.array([[10_000]], dtype=np.int32), np.ones((1, 1), dtype=np.float32), empty)
    with pytest.raises(InputError, match="Encode them with the columns that the model was fitted with"):
        offsets.offsets(Requests(Histories.of_lists([[1]]), context=beyond))
    with pytest.raises(InputError, match=r"offset.user.embedding of shape \(any, 7\)"):
        OffsetArrays.of(arrays, width=7)
    with pytest.raises(InputError, match=r"offset.user.embedding as float32, got float64"):
        OffsetArrays.of(arrays | {"offset.user.embedding": np.zeros((3, WIDTH))}, width=WIDTH)
