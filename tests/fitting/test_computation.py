"""Whoever computes, kernels or torch, learns as the settings say."""

import numpy as np
import pytest

from beamtree import native
from beamtree.config import Config
from beamtree.fitting.computation import build_learner
from beamtree.model.score import build_score
from beamtree.training.learner import Learner, TorchLearner
from beamtree.training.negatives import UniformSampler
from beamtree.training.tree_negatives import TreeSampler
from beamtree.tree.item_tree import ItemTree
from tests.model.test_new_part import TASTE
from tests.small import model_settings, random_histories, random_tree
from tests.training.runs import batch_from


@pytest.fixture(params=["kernels", "torch"])
def computation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "torch":
        monkeypatch.setattr(native, "is_available", lambda: False)
    elif not native.is_available():
        pytest.skip("the kernels were not compiled")


TREE = random_tree(60, branching=2, seed=2)


def config_of(*, dropout: float = 0.0, attention_levels: int | None = None, **training: str) -> Config:
    model = model_settings(dropout=dropout, attention_levels=attention_levels)
    chosen = {"method": "dtr-t", "negatives": 4, "learning_rate": 1e-3, "seed": 5} | training
    return Config.preset("small", training=chosen, model=model.model_dump())


def loss_of(learner: Learner, config: Config) -> float:
    """The loss of a first batch, before anything is learned."""
    generator = np.random.default_rng(4)
    histories = random_histories(64, length=config.model.attention_history, num_items=60, generator=generator)
    batch = batch_from(histories, generator.integers(0, 60, size=64).astype(np.int32))
    return learner.gradients(batch, step=0).loss


def first_loss(*, dropout: float = 0.0, attention_levels: int | None = None, **training: str) -> float:
    config = config_of(dropout=dropout, attention_levels=attention_levels, **training)
    return loss_of(build_learner(build_score(config, TREE, seed=1), config=config), config)


@pytest.mark.parametrize("method", ["dtr-u", "dtr-t"])
def test_torch_draws_by_the_method_that_is_set(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "is_available", lambda: False)
    config = config_of(method=method)
    score = build_score(config, TREE, seed=1)
    draws = (UniformSampler(4) if method == "dtr-u" else TreeSampler(4)).draws(score)
    assert loss_of(TorchLearner(score, draws=draws, settings=config.training), config) == first_loss(method=method)


@pytest.mark.usefixtures("computation")
def test_negatives_that_are_passed_stand_in_for_those_of_the_settings() -> None:
    config = config_of()
    learner = build_learner(build_score(config, TREE, seed=1), config=config, negatives=UniformSampler(4))
    assert loss_of(learner, config) == first_loss(method="dtr-u") != first_loss(method="dtr-t")


def test_negatives_that_the_kernels_do_not_know_are_drawn_in_torch_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class First(UniformSampler):
        name = "first come"

        def in_kernels(self, _tree: ItemTree) -> None:  # type: ignore[override]
            return None

    config = config_of()
    learner = build_learner(build_score(config, TREE, seed=1), config=config, negatives=First(4))
    assert isinstance(learner, TorchLearner)
    assert len(caplog.records) == 1
    if native.is_available():
        assert "do not know negatives first come" in caplog.text


@pytest.mark.usefixtures("computation")
def test_attention_is_learned_on_the_levels_that_the_settings_name(caplog: pytest.LogCaptureFixture) -> None:
    """On the leaves alone no path leads to the draws, which are uniform then."""
    config = config_of(attention_levels=2)
    learner = build_learner(build_score(config, TREE, seed=1), config=config)
    assert isinstance(learner, TorchLearner) != native.is_available()
    assert bool(caplog.records) != native.is_available()
    histories = random_histories(64, length=5, num_items=60, generator=np.random.default_rng(4))
    batch = batch_from(histories, np.arange(64, dtype=np.int32) % 60)
    rows = learner.gradients(batch, step=0).rows["attention/node_table"].rows
    assert rows.min() >= TREE.level_offsets[TREE.height - 1]
    on_leaves = [first_loss(attention_levels=1, method=method) for method in ("dtr-u", "dtr-t")]
    assert on_leaves[0] == pytest.approx(on_leaves[1], rel=1e-6)
    assert first_loss(attention_levels=2, method="dtr-u") != pytest.approx(first_loss(attention_levels=2), rel=1e-6)


def test_a_part_that_the_kernels_do_not_know_is_learned_in_torch_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = config_of()
    known, unknown = (build_score(config, TREE, seed=1, parts=parts) for parts in (None, TASTE))
    if native.is_available():
        assert not isinstance(build_learner(known, config=config), TorchLearner)
        assert not caplog.records
    assert isinstance(build_learner(unknown, config=config), TorchLearner)
    assert [record.message for record in caplog.records] == [
        "The kernels do not know the part taste of the score, so training runs in torch, many times slower."
    ]
