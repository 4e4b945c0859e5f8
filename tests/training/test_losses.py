from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from beamtree.training.losses import sampled_softmax_loss
from beamtree.training.negatives import UniformNegatives
from tests.small import random_tree
from tests.training.runs import batch_of

INFINITY = torch.inf


def gradient_of(loss: Tensor, scores: Tensor) -> Tensor:
    return torch.autograd.grad(loss, scores)[0]


def test_a_loss_worked_out_by_hand() -> None:
    """exp(score - correction): the first row has 1 against 2 + 3, the second 4 against 6."""
    scores = torch.tensor([[1.0, 2.0, 6.0], [4.0, 3.0, 0.0]]).log()
    scores[1, 2] = -INFINITY
    correction = torch.tensor([[1.0, 1.0, 2.0], [1.0, 0.5, 9.0]]).log()
    first, second = np.log(6.0), np.log(10.0 / 4.0)
    assert sampled_softmax_loss(scores, correction).item() == pytest.approx((first + second) / 2)
    weights = torch.tensor([0.0, 3.0])
    assert sampled_softmax_loss(scores, correction, weights=weights).item() == pytest.approx(3 * second / 2)


def test_whole_levels_give_the_full_cross_entropy() -> None:
    scores = torch.randn(6, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    sampled = sampled_softmax_loss(scores, torch.zeros_like(scores))
    full = functional.cross_entropy(scores, torch.zeros(6, dtype=torch.long))
    torch.testing.assert_close(sampled, full)
    torch.testing.assert_close(gradient_of(sampled, scores), gradient_of(full, scores))


def test_a_row_without_negatives_has_no_loss_and_no_gradient() -> None:
    scores = torch.tensor([[3.0, -INFINITY, -INFINITY], [1.0, 1.0, -INFINITY]], requires_grad=True)
    loss = sampled_softmax_loss(scores, torch.zeros(2, 3))
    assert loss.item() == pytest.approx(np.log(2.0) / 2), "the mean counts both rows"
    gradient = gradient_of(loss, scores)
    assert gradient[0].tolist() == [0.0, 0.0, 0.0]
    assert gradient[1].tolist() == pytest.approx([-0.25, 0.25, 0.0])


def test_the_gradient_is_unbiased_when_nodes_are_drawn_by_their_softmax() -> None:
    """All 4^3 ways to draw three nodes of a level of four with q = softmax(o), node 0 being the positive.

    A draw of the positive is masked; the correction is ln(M_eff q / (1 - q_pos)). Given that a negative was drawn at
    all, the expected gradient is that of the full softmax, and the loss of every single draw is the full loss.
    """
    nodes, draws, positive = 4, 3, 0
    scores = torch.tensor([0.3, -1.0, 1.2, 0.1], dtype=torch.float64, requires_grad=True)
    q = scores.detach().softmax(0)
    full = functional.cross_entropy(scores[None], torch.tensor([positive]))
    expected = gradient_of(full, scores)
    mean, total = torch.zeros(nodes, dtype=torch.float64), 0.0
    for drawn in product(range(nodes), repeat=draws):
        effective = sum(node != positive for node in drawn)
        if effective == 0:
            continue
        columns = torch.tensor([positive, *drawn])
        absent = torch.tensor([False, *(node == positive for node in drawn)])
        correction = (effective * q[columns] / (1 - q[positive])).log()
        correction[0] = 0.0
        loss = sampled_softmax_loss(scores[columns].masked_fill(absent, -INFINITY)[None], correction[None])
        assert loss.item() == pytest.approx(full.item())
        probability = float(q[list(drawn)].prod())
        mean += probability * gradient_of(loss, scores)
        total += probability
    assert total == pytest.approx(1 - float(q[positive]) ** draws)
    torch.testing.assert_close(mean / total, expected)


def test_with_more_uniform_draws_the_mean_gradient_approaches_the_full_one() -> None:
    tree = random_tree(32, branching=32, seed=0)
    scores = 1.5 * torch.randn(32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    scores.requires_grad_()
    target = int(tree.item_at_leaf[3])
    full = gradient_of(functional.cross_entropy(scores[None], torch.tensor([3])), scores)
    errors = []
    for count in (1, 5, 25):
        sampler = UniformNegatives(tree, counts=np.array([count]))
        candidates = sampler.draw(batch_of([target] * 30_000), generator=np.random.default_rng(0))
        leaves = torch.from_numpy(candidates.node_rows[0] - tree.level_offsets[1])
        drawn = scores[leaves.clamp(min=0)].masked_fill(leaves < 0, -INFINITY)
        loss = sampled_softmax_loss(drawn, torch.from_numpy(candidates.log_correction[0]))
        errors.append(float((gradient_of(loss, scores) - full).norm() / full.norm()))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.05
