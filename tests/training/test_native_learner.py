"""Learning in the kernels does what learning in torch does, given the same draws."""

import numpy as np
import pytest

from beamtree import native
from beamtree.config import ModelSettings, TrainingSettings
from beamtree.errors import InputError
from beamtree.model.attention import Attention
from beamtree.training.instances import Batch
from beamtree.training.learner import Learner, TorchLearner
from beamtree.training.negatives import Candidates, same_on_every_level
from beamtree.training.randomness import seed_for
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING
from tests.small import assert_same_bytes, fresh_attention, model_settings, random_histories, random_tree, score_of
from tests.training.runs import (
    assert_same_gradients,
    batch_from,
    batch_of,
    ring_tree,
    take_step,
    train,
    training_settings,
)

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")


def native_learner(
    settings: TrainingSettings, *, model: ModelSettings | None = None, tree: ItemTree | None = None
) -> Learner:
    from beamtree.native.training import Negatives
    from beamtree.training.native_learner import NativeLearner

    planted, sizes = tree or ring_tree(), model or model_settings()
    counts = same_on_every_level(planted, settings.negatives)
    drawn = Negatives(counts, sampler="uniform" if settings.method == "dtr-u" else "top_down")
    score = score_of(fresh_attention(sizes, planted, seed=settings.seed))
    return NativeLearner(score, negatives=drawn, settings=settings)


class GivenCandidates:
    """A sampler that hands out what was drawn elsewhere."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates

    def draw(self, _batch: Batch, *, generator: np.random.Generator) -> Candidates:
        del generator
        return self._candidates


def kernel_draws(model: Attention, tree: ItemTree, batch: Batch, *, settings: TrainingSettings) -> Candidates:
    from beamtree.native.training import Negatives
    from beamtree.training.native_learner import attention_arrays
    from tests.native.kernel_steps import draw_candidates

    counts = same_on_every_level(tree, settings.negatives)
    offsets = None if model.offset is None else model.offset.of_requests(batch.requests)
    rows, correction = draw_candidates(
        attention_arrays(model),
        tree,
        histories=batch.histories.latest(5),
        targets=np.ascontiguousarray(batch.targets[:, 0]),
        negatives=Negatives(counts, sampler="uniform" if settings.method == "dtr-u" else "top_down"),
        seed=seed_for(settings.seed, "negatives", 0),
        first_level=score_of(model).learned_levels()[0],
        layer_offsets=None if offsets is None else offsets.detach().numpy(),
    )
    shape = (len(batch.targets), tree.height, -1)
    return Candidates(rows.reshape(shape).swapaxes(0, 1).copy(), correction.reshape(shape).swapaxes(0, 1).copy())


@pytest.mark.parametrize("method", ["dtr-u", "dtr-t"])
@pytest.mark.parametrize("history_table", ["shared", "separate"])
@pytest.mark.parametrize("normalisation", ["none", "layer"])
@pytest.mark.parametrize("attention_levels", [None, 1, 2])
def test_a_step_moves_the_weights_as_torch_does(
    method: str, history_table: str, normalisation: str, attention_levels: int | None
) -> None:
    settings = training_settings(method=method, negatives=5, optimiser="adamw", weight_decay=0.01)
    sizes = model_settings(history_table=history_table, normalisation=normalisation, attention_levels=attention_levels)
    tree = random_tree(40, branching=3, seed=2, num_leaves=47)
    generator = np.random.default_rng(4)
    batch = batch_from(
        random_histories(9, length=5, num_items=40, generator=generator),
        generator.integers(0, 40, size=9).astype(np.int32),
        generator.choice([0.0, 1.0, 3.5], size=(9, tree.height)).astype(np.float32),
    )
    in_kernels = native_learner(settings, model=sizes, tree=tree)
    judge_model = fresh_attention(sizes, tree, seed=settings.seed)
    draws = kernel_draws(judge_model, tree, batch, settings=settings)
    # Rows that the kernels leave out, because their label is 0, need a positive for torch to score.
    positives = np.stack(
        [
            tree.item_ancestors(batch.targets[:, 0], level) + tree.level_offsets[level]
            for level in range(1, tree.height + 1)
        ]
    )
    draws.node_rows[..., 0] = np.where(draws.node_rows[..., 0] == NOTHING, positives, draws.node_rows[..., 0])
    judge = TorchLearner(score_of(judge_model), draws=GivenCandidates(draws), settings=settings)

    assert take_step(in_kernels, batch, step=0, learning_rate=0.01) == pytest.approx(
        take_step(judge, batch, step=0, learning_rate=0.01), rel=1e-5
    )
    moved, judged = in_kernels.model_arrays()["attention/node_table"], judge.model_arrays()["attention/node_table"]
    moments, judged_moments = in_kernels.optimiser_arrays(), judge.optimiser_arrays()
    for name, array in judged_moments.items():
        np.testing.assert_allclose(moments[name], array, rtol=2e-3, atol=2e-6, err_msg=name)
    # The first step of Adam is its learning rate by the sign of the gradient: only where that is clear can both agree.
    first = judged_moments["attention/node_table.first_moment"]
    clear = np.abs(first) > 1e-5
    np.testing.assert_allclose(moved[clear], judged[clear], atol=1e-4)


def test_the_loss_falls_and_the_same_seed_gives_the_same_bytes() -> None:
    first, again = (native_learner(training_settings()) for _ in range(2))
    losses = train(first, steps=60)
    assert losses[-1] < 0.5 * losses[0]
    assert train(again, steps=60) == losses
    assert_same_bytes(first.model_arrays(), again.model_arrays())


def test_a_restored_learner_goes_on_to_the_same_bytes() -> None:
    whole = native_learner(training_settings(method="dtr-t"))
    train(whole, steps=7)
    half = native_learner(training_settings(method="dtr-t"))
    half.load_model_arrays(whole.model_arrays())
    half.restore_optimiser({name: array.copy() for name, array in whole.optimiser_arrays().items()})
    train(whole, steps=5)
    train(half, steps=5)
    assert_same_bytes(half.model_arrays(), whole.model_arrays())
    assert_same_bytes(half.optimiser_arrays(), whole.optimiser_arrays())


def test_asking_for_gradients_changes_nothing_and_applying_them_leaves_them_alone() -> None:
    learner = native_learner(training_settings(clip_norm=0.01))
    batch = batch_of([0, 1, 2], history_item=3)
    before = {name: array.copy() for name, array in learner.model_arrays().items()}
    first, again = learner.gradients(batch, step=0), learner.gradients(batch, step=0)
    assert_same_bytes(learner.model_arrays(), before)
    learner.apply(first, step=0, learning_rate=0.1)
    assert_same_gradients(first, again)
    assert (learner.model_arrays()["attention/mlp.0.weight"] != before["attention/mlp.0.weight"]).any()


def test_a_score_that_the_kernels_do_not_know_is_refused() -> None:
    with pytest.raises(InputError, match="attention alone, without batch normalisation"):
        native_learner(training_settings(), model=model_settings(normalisation="batch"))
