"""Whoever computes, kernels or torch, learns as the settings say."""

import numpy as np
import pytest

from beamtree import native
from beamtree.config import Config
from beamtree.fitting.computation import build_learner
from beamtree.model.preference import build_model
from beamtree.training.instances import Batch
from tests.small import model_settings, random_histories, random_tree


@pytest.fixture(params=["kernels", "torch"])
def computation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "torch":
        monkeypatch.setattr(native, "is_available", lambda: False)
    elif not native.is_available():
        pytest.skip("the kernels were not compiled")


def first_loss(**training: str) -> float:
    """The loss of a first batch, before anything is learned; the draws of one seed."""
    tree = random_tree(60, branching=2, seed=2)
    chosen = {"method": "dtr-t", "negatives": 4, "learning_rate": 1e-3, "seed": 5} | training
    config = Config.preset("small", training=chosen, model=model_settings().model_dump())
    generator = np.random.default_rng(4)
    histories = random_histories(64, length=config.model.history_length, num_items=60, generator=generator)
    batch = Batch(histories, generator.integers(0, 60, size=64).astype(np.int32))
    model = build_model(config.model, tree, seed=1)
    return build_learner(model, tree, config=config).step(batch, step=0, learning_rate=1e-3)


@pytest.mark.usefixtures("computation")
def test_draws_begin_where_the_settings_say() -> None:
    assert first_loss(path_start="root") != first_loss(path_start="level") == first_loss()


@pytest.mark.usefixtures("computation")
def test_the_published_correction_counts_negatives_more() -> None:
    """It leaves out 1 - q of the positive, which divides q of every negative."""
    assert first_loss(path_correction="published") > first_loss(path_correction="negatives") == first_loss()
