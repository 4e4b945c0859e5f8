"""OTM's pseudo-targets and loss on a tree small enough to draw, worked out by hand.

       0
   1       2
 3   4   5   6
7 8 9 10 11 12 13 14      item i on leaf i, which is node 7 + i
"""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from beamtree.baselines.trees.beam_loss import BeamLoss, pseudo_targets
from beamtree.data.requests import Histories, Requests
from beamtree.model.part import PreparedPart
from beamtree.model.score import Score
from beamtree.training.instances import Batch
from beamtree.tree.build import plant
from beamtree.types import Float32Array, Int64Array

TREE = plant(np.arange(8), branching=2)
SCORES = {1: 1.0, 2: 2.0, 3: 0.5, 4: 0.2, 5: 0.9, 6: 0.8} | dict(
    zip(range(7, 15), (3, 1, 2, 2, 5, 4, 0, 1), strict=True)
)


def score_rows(_levels: Sequence[int], rows: Int64Array) -> Float32Array:
    scores = [SCORES.get(int(row), -np.inf) for row in rows.flat]
    return np.array(scores, dtype=np.float32).reshape(rows.shape)


def labels_of(targets: list[int], *, first_level: int = 1) -> dict[int, dict[int, float]]:
    """By level: node, numbered over the whole tree, to label."""
    found = pseudo_targets(TREE, np.array([targets], dtype=np.int32), score_rows, first_level=first_level)
    return {
        level: {
            int(node + TREE.level_offsets[level]): float(label)
            for node, label in zip(of_level.nodes[0], of_level.labels[0], strict=True)
            if node >= 0
        }
        for level, of_level in found.items()
    }


def test_a_target_that_wins_everywhere_is_positive_up_to_the_top() -> None:
    """Leaf 11 (5) beats 12 (4); node 5 (.9) beats 6 (.8)."""
    assert labels_of([4]) == {3: {11: 1.0}, 2: {5: 1.0}, 1: {2: 1.0}}


def test_a_target_that_loses_to_its_sibling_makes_no_ancestor_positive() -> None:
    """Leaf 12 (4) loses to 11 (5)."""
    assert labels_of([5]) == {3: {12: 1.0}, 2: {5: 0.0}, 1: {2: 0.0}}


def test_the_correction_stops_where_an_ancestor_loses() -> None:
    """Leaf 14 (1) beats 13 (0), but its parent 6 (.8) loses to 5 (.9)."""
    assert labels_of([7]) == {3: {14: 1.0}, 2: {6: 1.0}, 1: {2: 0.0}}


def test_equal_scores_count_as_a_win_and_labels_are_clipped() -> None:
    """Leaves 9 and 10 score 2 each: their parent 4 gets 1 + 1, clipped to 1, and loses to 3 (.5 against .2)."""
    assert labels_of([2, 3]) == {3: {9: 1.0, 10: 1.0}, 2: {4: 1.0}, 1: {1: 0.0}}


def test_several_targets_add_up_under_a_parent() -> None:
    """Of 7 (3) and 8 (1) only 7 wins; with 14, whose parent loses, node 1 has 1 and node 2 has 0."""
    assert labels_of([0, 1, 7]) == {3: {7: 1.0, 8: 1.0, 14: 1.0}, 2: {3: 1.0, 6: 1.0}, 1: {1: 1.0, 2: 0.0}}


def test_levels_above_the_first_searched_one_have_no_labels() -> None:
    assert labels_of([4], first_level=3) == {3: {11: 1.0}}


VALUES = torch.tensor([SCORES.get(node, 0.0) for node in range(15)], requires_grad=True)


def table_scores(score: Score, requests: Requests, *, dropout: torch.Generator | None) -> PreparedPart:  # noqa: ARG001
    """A score of each node, whoever asks."""
    return lambda _levels, nodes: VALUES[nodes.clamp(min=0)].masked_fill(nodes < 0, -torch.inf)


def loss_of(target: int) -> Tensor:
    """With a beam of 2. Level 2 is the first with more than two nodes, and taken whole: 3, 4, 5, 6."""
    batch = Batch(Histories.of_lists([[1]]), np.array([[target]], dtype=np.int32))
    return BeamLoss(TREE, beam_width=2, prepare=table_scores)(Score(TREE, {}), batch, torch.Generator())


def test_the_loss_is_over_all_candidates_of_the_beam() -> None:
    """Target 4 makes 5 and 11 positive. The beam keeps 5 and 6, so that the leaves 11 to 14 are candidates."""
    loss = loss_of(4)
    no = [SCORES[node] for node in (3, 4, 6, 12, 13, 14)]
    yes = [SCORES[node] for node in (5, 11)]
    by_hand = sum(math.log1p(math.exp(score)) for score in no) + sum(math.log1p(math.exp(-score)) for score in yes)
    assert loss.item() == pytest.approx(by_hand / 8)
    (gradient,) = torch.autograd.grad(loss, [VALUES])
    assert gradient.nonzero().squeeze(1).tolist() == [3, 4, 5, 6, 11, 12, 13, 14]
    assert gradient[5].item() == pytest.approx((1 / (1 + math.exp(-0.9)) - 1) / 8), "the label has no gradient"


def test_a_positive_off_the_beam_is_not_learned_from() -> None:
    """Target 0 is below node 3, which the beam drops: its leaf 7 is no candidate."""
    (gradient,) = torch.autograd.grad(loss_of(0), [VALUES])
    assert gradient[7].item() == 0.0
    assert gradient[3].item() < 0.0, "a candidate with a positive label"
