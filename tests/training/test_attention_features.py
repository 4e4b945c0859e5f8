"""Attention learns what features add to its first layer: in the kernels as in torch."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from beamtree import native
from beamtree.config import Config
from beamtree.data.features import FeatureSchema
from beamtree.data.request_features import RequestFeatures
from beamtree.model.attention import Attention, attention_reading
from beamtree.model.next_item import NO_HISTORY_SHARE
from beamtree.training.candidate_scores import native_candidate_scores, torch_candidate_scores
from beamtree.training.history_dropout import without_some_histories
from beamtree.training.instances import Batch
from beamtree.training.learner import TorchLearner
from beamtree.training.negatives import same_on_every_level
from beamtree.training.randomness import numpy_generator
from beamtree.training.relearn import Stage
from tests.small import fresh_attention, model_settings, random_histories, random_tree, score_of
from tests.training.runs import batch_from, training_settings
from tests.training.test_native_learner import GivenCandidates, kernel_draws

IN_KERNELS = pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")
TREE = random_tree(40, branching=3, seed=2, num_leaves=47)
USERS = pl.DataFrame(
    {"city": ["Oslo", "Rome", None] * 4, "taste": [[0.5, -1.0], None, [1.0, 2.0]] * 4},
    schema_overrides={"taste": pl.List(pl.Float32)},
)
CONTEXTS = pl.DataFrame({"device": ["phone", "tablet"] * 6})
READ = RequestFeatures(FeatureSchema.infer(USERS), FeatureSchema.infer(CONTEXTS))


def attention(normalisation: str = "none", *, history_table: str = "shared") -> Attention:
    """Attention whose tables of features are not zero any more."""
    settings = model_settings(normalisation=normalisation, history_table=history_table)
    made = attention_reading(READ)(TREE, Config(model=settings), torch.Generator().manual_seed(1))
    assert isinstance(made, Attention)
    assert made.offset is not None
    with torch.no_grad():
        for tensor in made.offset.parameters():
            tensor.normal_(generator=torch.Generator().manual_seed(len(tensor)))
    return made


def batch() -> Batch:
    generator = np.random.default_rng(4)
    plain = batch_from(
        random_histories(12, length=5, num_items=40, generator=generator),
        generator.integers(0, 40, size=12).astype(np.int32),
        None,
    )
    return replace(plain, user_features=READ.user.encode(USERS), context=READ.context.encode(CONTEXTS))


@IN_KERNELS
@pytest.mark.parametrize("method", ["dtr-u", "dtr-t"])
@pytest.mark.parametrize("history_table", ["shared", "separate"])
@pytest.mark.parametrize("normalisation", ["none", "layer"])
def test_gradients_are_those_of_torch(method: str, history_table: str, normalisation: str) -> None:
    from beamtree.native.training import Negatives
    from beamtree.training.native_learner import NativeLearner

    settings = training_settings(method=method, negatives=5)
    models = [attention(normalisation, history_table=history_table) for _ in range(2)]
    counts = same_on_every_level(TREE, settings.negatives)
    drawn = Negatives(counts, sampler="uniform" if method == "dtr-u" else "top_down")
    told = without_some_histories(
        batch(), score_of(models[0]), generator=numpy_generator(settings.seed, "no history", 0)
    )
    draws = GivenCandidates(kernel_draws(models[0], TREE, told, settings=settings))
    judge = TorchLearner(score_of(models[1]), draws=draws, settings=settings)
    found = NativeLearner(score_of(models[0]), negatives=drawn, settings=settings).gradients(batch(), step=0)
    judged = judge.gradients(batch(), step=0)
    assert found.loss == pytest.approx(judged.loss, rel=1e-5)
    assert found.dense.keys() == judged.dense.keys()
    for name, gradient in judged.dense.items():
        np.testing.assert_allclose(found.dense[name], gradient, rtol=2e-3, atol=2e-6, err_msg=name)
    tables = {"user.embedding", "user.projection", "context.embedding"}
    assert all(found.dense[f"attention/offset.{name}"].abs().max() > 1e-4 for name in tables)


@IN_KERNELS
def test_instances_without_features_leave_the_tables_alone() -> None:
    from beamtree.native.training import Negatives
    from beamtree.training.native_learner import NativeLearner

    silent = replace(batch(), user_features=None, context=None)
    settings = training_settings()
    drawn = Negatives(same_on_every_level(TREE, settings.negatives))
    found = NativeLearner(score_of(attention()), negatives=drawn, settings=settings).gradients(silent, step=0)
    assert not any(gradient.any() for name, gradient in found.dense.items() if "offset" in name)
    assert found.dense.keys() == score_of(attention()).small_weights().keys()


@IN_KERNELS
def test_places_are_scored_with_features_in_the_kernels_as_in_torch() -> None:
    model, stage = attention("layer"), Stage(0, 2)
    sums = [np.zeros((40, int(TREE.level_sizes[2]))) for _ in range(3)]
    groups = np.zeros(40, dtype=np.int64)
    native_candidate_scores(model)(sums[0], batch(), groups, stage)
    torch_candidate_scores(score_of(model))(sums[1], batch(), groups, stage)
    native_candidate_scores(model)(sums[2], replace(batch(), context=None), groups, stage)
    np.testing.assert_allclose(sums[0], sums[1], atol=1e-4)
    assert np.abs(sums[0] - sums[2]).max() > 1e-2


def test_some_histories_are_dropped_where_features_are_read() -> None:
    many = batch_from(np.zeros((4000, 5), dtype=np.int32), np.zeros(4000, dtype=np.int32), None)
    plain, reading = score_of(fresh_attention(model_settings(), TREE, seed=1)), score_of(attention())
    generator = np.random.default_rng(0)
    assert without_some_histories(many, plain, generator=generator) is many
    lengths = without_some_histories(many, reading, generator=generator).histories.lengths
    assert set(lengths.tolist()) == {0, 5}
    assert np.mean(lengths == 0) == pytest.approx(NO_HISTORY_SHARE, abs=0.02)
