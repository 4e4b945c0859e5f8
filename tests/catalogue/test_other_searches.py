"""A changed catalogue is the same to the kernels, to torch and to ONNX Runtime."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import Artefact
from beamtree.catalogue.change import change_catalogue
from beamtree.export.onnx import export_onnx
from beamtree.model.torch_scorer import build_torch_scorer
from tests.catalogue.models import tiny_model
from tests.export.exported import assert_same_up_to_ties, run, search
from tests.small import random_histories, random_tree

HISTORIES = random_histories(30, length=9, num_items=40, generator=np.random.default_rng(1))


@pytest.fixture(params=[8, 30], ids=["a beam", "a scan of what is left"])
def beam_width(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def changed() -> Artefact:
    """Forty items and eight new ones, of which the popular half is removed."""
    model = tiny_model(random_tree(40, branching=3, seed=3), seed=3)
    new = pl.DataFrame({"item_id": np.arange(500, 508), "category": ["War"] * 4 + ["Drama"] * 4})
    popular = (100 + np.argsort(-model.popularity, kind="stable")[:20]).tolist()
    with_new = change_catalogue(model, add=new).artefact
    return change_catalogue(with_new, remove=[*popular, 501]).artefact


def test_torch_searches_as_the_kernels_do(changed: Artefact, beam_width: int) -> None:
    found = search(changed, HISTORIES, k=6, beam_width=beam_width)
    judge = search(changed, HISTORIES, k=6, beam_width=beam_width, make_scorer=build_torch_scorer)
    assert_same_up_to_ties({"items": judge.items, "scores": judge.scores}, found)
    assert not np.isin(found.items, changed.tree.removed).any()


def test_onnx_has_the_removals_baked_in(changed: Artefact, beam_width: int, tmp_path: Path) -> None:
    export_onnx(changed, tmp_path / "model.onnx", k=6, beam_width=beam_width)
    found = search(changed, HISTORIES, k=6, beam_width=beam_width)
    assert_same_up_to_ties(run(tmp_path / "model.onnx", HISTORIES), found)
