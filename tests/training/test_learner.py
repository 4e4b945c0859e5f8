import numpy as np
import pytest
import torch
from torch import Tensor

from beamtree.config import TrainingSettings
from beamtree.errors import DivergedError
from beamtree.model.score import attention_alone
from beamtree.training.instances import Batch
from beamtree.training.learner import TorchLearner
from beamtree.training.losses import sampled_softmax_loss
from beamtree.training.negatives import UniformNegatives, same_on_every_level
from beamtree.training.randomness import numpy_generator
from beamtree.tree.item_tree import ItemTree
from tests.small import assert_same_bytes, model_settings, random_histories, random_tree
from tests.training.runs import (
    assert_same_gradients,
    batch_from,
    batch_of,
    take_step,
    torch_learner,
    train,
    training_settings,
)


def dense_gradients(
    learner: TorchLearner, tree: ItemTree, batch: Batch, *, settings: TrainingSettings, step: int
) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of one plain pass through the whole tables, all levels at once."""
    model = attention_alone(learner.score)
    assert model is not None
    model.train()
    counts = same_on_every_level(tree, settings.negatives)
    generator = numpy_generator(settings.seed, "negatives", step)
    candidates = UniformNegatives(tree, counts=counts).draw(batch, generator=generator)
    levels = range(1, tree.height + 1)
    histories = batch.histories.latest(5)
    history_rows = torch.from_numpy(np.concatenate([model.history_rows(histories, level) for level in levels]))
    history_table = model.node_table if model.item_table is None else model.item_table
    node_rows = torch.from_numpy(candidates.node_rows).flatten(0, 1)
    scores = model(
        history_table[history_rows.clamp(min=0)],
        model.node_table[node_rows.clamp(min=0)],
        present=history_rows >= 0,
        candidates=node_rows >= 0,
    )
    weights = None if batch.level_weights is None else torch.from_numpy(batch.level_weights[:, 0].T.flatten())
    loss = sampled_softmax_loss(scores, torch.from_numpy(candidates.log_correction).flatten(0, 1), weights=weights)
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    return loss.item(), dict(zip(parameters, gradients, strict=True))


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("history_table", ["shared", "separate"])
@pytest.mark.parametrize("normalisation", ["none", "layer", "batch"])
def test_gradients_equal_those_of_one_dense_pass(history_table: str, normalisation: str, is_weighted: bool) -> None:
    settings = training_settings(weight_decay=0.0, optimiser="adam", clip_norm=1e9)
    sizes = model_settings(history_table=history_table, normalisation=normalisation)
    tree = random_tree(11, branching=2, seed=2, num_leaves=14)
    batch = batch_from(
        random_histories(6, length=5, num_items=11, generator=np.random.default_rng(0)),
        np.array([0, 3, 3, 10, 7, 5], dtype=np.int32),
        np.linspace(0, 1, 6 * tree.height, dtype=np.float32).reshape(6, -1) if is_weighted else None,
    )
    judge = torch_learner(settings, model=sizes, tree=tree)
    expected_loss, expected = dense_gradients(judge, tree, batch, settings=settings, step=4)
    learner = torch_learner(settings, model=sizes, tree=tree)
    found = learner.gradients(batch, step=4)
    assert found.loss == pytest.approx(expected_loss, rel=1e-5)
    assert {f"attention/{name}" for name in expected} == found.dense.keys() | found.rows.keys()
    for name, gradient in expected.items():
        if name in ("node_table", "item_table"):
            touched = found.rows[f"attention/{name}"]
            whole = torch.zeros_like(gradient)
            whole[touched.rows] = touched.values
        else:
            whole = found.dense[f"attention/{name}"]
        np.testing.assert_allclose(whole.numpy(), gradient.numpy(), rtol=1e-3, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("normalisation", ["none", "layer", "batch"])
def test_asking_for_gradients_changes_nothing_and_applying_them_leaves_them_alone(normalisation: str) -> None:
    learner = torch_learner(training_settings(clip_norm=0.01), model=model_settings(normalisation=normalisation))
    batch = batch_of([0, 1, 2], history_item=3)
    before = {name: array.copy() for name, array in learner.model_arrays().items()}
    first, again = learner.gradients(batch, step=0), learner.gradients(batch, step=0)
    assert_same_bytes(learner.model_arrays(), before)
    assert_same_gradients(first, again)
    learner.apply(first, step=0, learning_rate=0.1)
    assert_same_gradients(first, again)
    changed = {name for name, array in learner.model_arrays().items() if (array != before[name]).any()}
    assert {"attention/node_table", "attention/mlp.0.weight"} <= changed
    assert ("attention/norm.0.running_mean" in changed) == (normalisation == "batch")


def test_rows_that_a_batch_does_not_touch_stay_as_they_are() -> None:
    """Two targets and one negative per level among 64 leaves: most rows are left alone, decay or not."""
    settings = training_settings(negatives=1, weight_decay=0.1)
    tree = random_tree(64, branching=2, seed=0)
    learner = torch_learner(settings, tree=tree)
    before = {name: array.copy() for name, array in learner.model_arrays().items()}
    batch = batch_of([1, 2], history_item=7)
    take_step(learner, batch, step=0, learning_rate=0.1)
    changed = (learner.model_arrays()["attention/node_table"] != before["attention/node_table"]).any(axis=1)
    targets = np.array(
        [tree.item_ancestors(batch.targets[:, 0], level) + tree.level_offsets[level] for level in range(1, 7)]
    )
    assert changed[targets].all()
    assert 0 < changed.sum() <= 6 * (2 + 2 + 1), "per level two positives, two negatives and one item of the history"
    assert not changed[0], "nobody ever scores the root"
    moments = learner.optimiser_arrays()
    assert not moments["attention/node_table.first_moment"][~changed].any()


def test_the_loss_falls_where_there_is_something_to_learn() -> None:
    losses = train(torch_learner(training_settings()), steps=80)
    assert losses[0] == pytest.approx(np.log([2, 4, 4]).mean(), abs=0.5), "about as good as a guess at first"
    assert np.mean(losses[-10:]) < 0.4 * losses[0]


@pytest.mark.parametrize(("attention_levels", "candidates"), [(None, [2, 4, 8]), (2, [4, 8]), (1, [8])])
def test_a_guess_costs_the_logarithm_of_the_candidates(attention_levels: int | None, candidates: list[int]) -> None:
    """With the last layer at zero all scores are equal: ln 2 on level 1, ln 4 on level 2, and on the leaves, of which
    three are drawn with replacement from eight, the seven others count in full: ln 8. Learned levels alone count."""
    settings = training_settings(negatives=3)
    learner = torch_learner(settings, model=model_settings(attention_levels=attention_levels))
    with torch.no_grad():
        learner.score.small_weights()["attention/mlp.3.weight"].zero_()
    batch = batch_of([0] * 50, history_item=0)
    assert learner.gradients(batch, step=0).loss == pytest.approx(np.log(candidates).mean(), rel=1e-5)


@pytest.mark.parametrize("normalisation", ["none", "layer", "batch"])
def test_the_same_seed_gives_the_same_bytes(normalisation: str) -> None:
    sizes = model_settings(dropout=0.2, normalisation=normalisation)
    first, again = (torch_learner(training_settings(), model=sizes) for _ in range(2))
    assert train(first, steps=5) == train(again, steps=5)
    assert_same_bytes(first.model_arrays(), again.model_arrays())
    assert_same_bytes(first.optimiser_arrays(), again.optimiser_arrays())
    other = torch_learner(training_settings(seed=4), model=sizes)
    train(other, steps=5)
    assert (other.model_arrays()["attention/node_table"] != first.model_arrays()["attention/node_table"]).any()


def test_dropout_is_used_and_follows_the_step() -> None:
    batch = batch_of([0, 1, 2, 3], history_item=0)
    settings = training_settings(negatives=64)  # every level whole: only dropout is random
    sizes = model_settings(dropout=0.5)
    losses = [torch_learner(settings, model=sizes).gradients(batch, step=step).loss for step in (0, 1, 0)]
    assert losses[0] == losses[2] != losses[1]
    without = [torch_learner(settings).gradients(batch, step=step).loss for step in (0, 1)]
    assert without[0] == without[1]


def test_the_network_is_clipped() -> None:
    """Adam's first moment is a tenth of the gradient: its norm shows the clipping."""
    settings = training_settings(clip_norm=0.01, weight_decay=0.0)
    learner = torch_learner(settings)
    train(learner, steps=1)
    moments = [array for name, array in learner.optimiser_arrays().items() if name.endswith(".exp_avg")]
    assert np.sqrt(sum((array**2).sum() for array in moments)) == pytest.approx(0.001, rel=1e-3)


def test_a_restored_optimiser_goes_on_like_the_original() -> None:
    settings = training_settings()
    original = torch_learner(settings)
    train(original, steps=3)
    restored = torch_learner(settings)
    restored.load_model_arrays(original.model_arrays())
    restored.restore_optimiser({name: array.copy() for name, array in original.optimiser_arrays().items()})
    train(original, steps=3)
    train(restored, steps=3)
    assert_same_bytes(original.model_arrays(), restored.model_arrays())
    assert_same_bytes(original.optimiser_arrays(), restored.optimiser_arrays())


def test_the_model_is_left_ready_to_be_asked() -> None:
    learner = torch_learner(training_settings())
    train(learner, steps=1)
    assert not learner.score.training


def test_a_step_whose_gradients_are_not_finite_is_not_taken() -> None:
    learner = torch_learner(training_settings())
    before = {name: array.copy() for name, array in learner.model_arrays().items()}
    with torch.no_grad():
        learner.score.small_weights()["attention/mlp.3.bias"].fill_(torch.inf)
    with pytest.raises(DivergedError, match="not finite at step 0"):
        take_step(learner, batch_of([0, 1, 2], history_item=3), step=0, learning_rate=0.1)
    name = "attention/mlp.3.bias"
    assert_same_bytes({**learner.model_arrays(), name: before[name]}, before)
