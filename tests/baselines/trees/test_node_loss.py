"""Losses over nodes, against what is worked out by hand and against the score written out in torch."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from beamtree.baselines.trees.beam_loss import BeamLoss
from beamtree.baselines.trees.node_loss import NodewiseLoss, SiblingNodes, UniformNodes, binary_cross_entropy
from beamtree.baselines.trees.node_scores import NodeLoss, NodeScores, learner_of
from beamtree.data.requests import Histories
from beamtree.model.score import Score
from beamtree.training.instances import Batch
from beamtree.tree.item_tree import ItemTree
from tests.small import model_settings, random_tree, score_of, small_config, stirred_model

SEED = 5


def batch_of(*, items: int, targets: int = 2) -> Batch:
    """Histories of none to nine items; some instances lack their second target."""
    generator = np.random.default_rng(4)
    lists = [generator.integers(0, items, size=size).tolist() for size in (0, 1, 3, 5, 9)]
    chosen = generator.integers(0, items, size=(len(lists), targets)).astype(np.int32)
    chosen[::2, 1:] = -1
    return Batch(Histories.of_lists(lists), chosen)


def score_over(*, items: int = 13, history_table: str = "shared") -> Score:
    tree = random_tree(items, branching=2, seed=1)
    return score_of(stirred_model(model_settings(history_table=history_table), tree, seed=2))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


def test_cross_entropy_by_hand() -> None:
    """A yes at score 0 and a no at score ln 3: ln 2 and ln 4; what is absent does not count."""
    scores = torch.tensor([[0.0, math.log(3.0), -torch.inf]])
    labels = torch.tensor([[1.0, 0.0, 0.0]])
    loss = binary_cross_entropy(scores, labels, present=torch.tensor([[True, True, False]]))
    assert loss.item() == pytest.approx((math.log(2.0) + math.log(4.0)) / 2)


@pytest.mark.parametrize("history_table", ["shared", "separate"])
def test_node_scores_and_their_gradients_are_those_of_the_score(history_table: str) -> None:
    """The kernels and the score written in torch; columns without a node score -inf."""
    score, batch = score_over(history_table=history_table), batch_of(items=13)
    rows = torch.from_numpy(
        UniformNodes(score.tree, negatives=3)(batch.targets, generator=np.random.default_rng(0)).rows
    )
    levels = range(1, score.tree.height + 1)
    present = rows >= 0

    def gradients_of(scores: Tensor) -> dict[str, Tensor]:
        loss = (scores[present] * torch.linspace(-1.0, 1.0, int(present.sum()))).sum()
        names = dict(score.named_parameters())
        found = torch.autograd.grad(loss, list(names.values()), allow_unused=True, materialize_grads=True)
        return {name: value.to_dense() for name, value in zip(names, found, strict=True)}

    plain = score.prepare(batch.requests)(levels, rows)
    found = NodeScores(score, batch.requests, dropout=None)(levels, rows)
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)
    expected, computed = gradients_of(plain), gradients_of(found)
    for name in expected:
        torch.testing.assert_close(computed[name], expected[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("history_table", ["shared", "separate"])
def test_the_mean_over_siblings(history_table: str) -> None:
    score, batch = score_over(history_table=history_table), batch_of(items=13)
    choose = SiblingNodes(score.tree)
    chosen = choose(batch.targets, generator=np.random.default_rng(0))
    rows = torch.from_numpy(chosen.rows)
    plain = score.prepare(batch.requests)(range(1, score.tree.height + 1), rows).detach().numpy()
    present = chosen.rows >= 0
    signs = np.where(chosen.labels[present] == 1, -1.0, 1.0)
    by_hand = np.log1p(np.exp(signs * plain[present])).mean()
    loss = NodewiseLoss(choose)(score, batch, generator())
    assert loss.item() == pytest.approx(by_hand, rel=1e-4)


def uniform_loss(tree: ItemTree) -> NodeLoss:
    return NodewiseLoss(UniformNodes(tree, negatives=2))


def beam_loss(tree: ItemTree) -> NodeLoss:
    return BeamLoss(tree, beam_width=3)


@pytest.mark.parametrize("loss_of", [uniform_loss, beam_loss])
def test_a_learner_lowers_the_loss_and_touches_no_other_row(loss_of: Callable[[ItemTree], NodeLoss]) -> None:
    score, batch = score_over(history_table="separate"), batch_of(items=13, targets=1)
    learner = learner_of(loss_of(score.tree), score, config=small_config())
    before = {name: array.copy() for name, array in score.arrays().items()}
    losses = []
    for step in range(60):
        gradients = learner.gradients(batch, step=step)
        losses.append(gradients.loss)
        learner.apply(gradients, step=step, learning_rate=0.02)
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])
    met = set(batch.histories.flattened().items.tolist())
    unmet = [item for item in range(13) if item not in met]
    after = score.arrays()["attention/item_table"]
    assert unmet, "some item is in no history"
    np.testing.assert_array_equal(after[unmet], before["attention/item_table"][unmet])


def test_the_same_step_gives_the_same_bytes() -> None:
    score, batch = score_over(), batch_of(items=13)
    learner = learner_of(NodewiseLoss(UniformNodes(score.tree, negatives=2)), score, config=small_config())
    first, again, other = (learner.gradients(batch, step=step) for step in (3, 3, 4))
    assert first.loss == again.loss != other.loss
    for name, value in first.dense.items():
        assert torch.equal(value, again.dense[name])
