"""Max-heap violations on trees small enough to draw."""

import numpy as np
import pytest

from beamtree.diagnostics.heap import best_leaves, compare_siblings, share_below_rank, top_leaves
from beamtree.diagnostics.levels import measure_levels
from beamtree.tree.build import plant
from tests.diagnostics.levels_by_hand import plan_for, scorer

TREE = plant(np.arange(8, dtype=np.int32), branching=2)

LEAVES = np.array([8.0, 1.0, 2.0, 3.0, 7.0, 6.0, 5.0, 4.0])
HEAP = [np.array([0.9, 0.1]), np.array([8.0, 3.0, 7.0, 5.0]) / 10, LEAVES]
"""Every node ranks as the best leaf below it."""


def test_a_heap_has_no_violations() -> None:
    found = measure_levels(scorer(HEAP), target=0, plan=plan_for(TREE), generator=np.random.default_rng(0))
    for shares in (found.child_violations, found.leaf_violations, found.path_violations):
        assert shares[:2].tolist() == [0.0, 0.0]
        assert np.isnan(shares[2])


def test_a_planted_violation_is_counted_on_its_level_alone() -> None:
    """Nodes 2 and 3 of level 2 swap their scores: 0.7 stands above the best leaf 5, 0.5 above the best leaf 7.

    That is one of two sibling pairs there. Level 1 is judged by the same best scores as before, so it stays a heap.
    """
    planted = [HEAP[0], np.array([0.8, 0.3, 0.5, 0.7]), LEAVES]
    found = measure_levels(scorer(planted), target=0, plan=plan_for(TREE), generator=np.random.default_rng(0))
    assert found.child_violations[:2].tolist() == [0.0, 0.5]
    assert found.leaf_violations[:2].tolist() == [0.0, 0.5]


def test_best_child_and_best_leaf_can_disagree() -> None:
    """Level 1 agrees with its children but not with the leaves: the best leaf is below the lower node."""
    levels = [np.array([2.0, 1.0]), np.array([5.0, 4.0, 3.0, 2.0]), np.array([1, 2, 3, 4, 5, 6, 7, 8.0])]
    found = measure_levels(scorer(levels), target=0, plan=plan_for(TREE), generator=np.random.default_rng(0))
    assert found.child_violations[0] == 0.0
    assert found.leaf_violations[0] == 1.0


def test_ties_and_absent_siblings_contradict_nothing() -> None:
    own = np.array([[1.0, 1.0, -np.inf], [2.0, 1.0, -np.inf]])
    below = np.array([[5.0, 6.0, -np.inf], [1.0, 4.0, -np.inf]])
    pairs = compare_siblings(own, below)
    assert (pairs.compared, pairs.violated) == (2, 1)


def test_three_siblings_make_three_pairs() -> None:
    pairs = compare_siblings(np.array([[3.0, 2.0, 1.0]]), np.array([[1.0, 2.0, 3.0]]))
    assert (pairs.compared, pairs.violated, pairs.share) == (3, 3, 1.0)


def test_best_leaves_of_every_node() -> None:
    assert [level.tolist() for level in best_leaves(LEAVES, tree=TREE)] == [
        [8.0],
        [8.0, 7.0],
        [8.0, 3.0, 7.0, 5.0],
        LEAVES.tolist(),
    ]


def test_top_leaves_that_fall_out_of_the_beam() -> None:
    """The top three leaves 0, 4, 5 lie below nodes 0, 2, 2; a beam of one keeps node 1 or node 2."""
    top = top_leaves(LEAVES, count=3)
    assert sorted(top.tolist()) == [0, 4, 5]
    nodes = TREE.ancestors(top, 2)
    assert share_below_rank(np.array([0.0, 9.0, 1.0, 0.0]), nodes, width=1) == 1.0
    assert share_below_rank(np.array([0.0, 1.0, 9.0, 0.0]), nodes, width=1) == pytest.approx(1 / 3)
    assert share_below_rank(np.array([0.0, 1.0, 9.0, 0.0]), nodes, width=3) == 0.0


def test_vacant_leaves_are_no_top_leaves() -> None:
    assert top_leaves(np.array([-np.inf, 2.0, -np.inf]), count=3).tolist() == [1]
