"""Distributions of the samplers and their distance from the softmax, worked out by hand and on random trees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.diagnostics.sampling import (
    divergence,
    log_softmax,
    top_down_log_q,
    uniform_log_q,
)
from beamtree.tree.build import plant
from tests.diagnostics.levels_by_hand import random_leaf_scores, sums_of_children
from tests.small import random_tree


def test_uniform_against_three_to_one() -> None:
    """P = (3/4, 1/4): KL = 1/2 ln(2/3) + 1/2 ln 2 = 1/2 ln(4/3)."""
    scores = np.array([np.log(3.0) + 5.0, 5.0])
    assert divergence(uniform_log_q(scores), log_softmax(scores)) == pytest.approx(0.5 * np.log(4 / 3))


def test_nodes_without_items_are_never_drawn() -> None:
    scores = np.array([1.0, -np.inf, 1.0])
    assert np.exp(uniform_log_q(scores)).tolist() == [0.5, 0.0, 0.5]
    assert divergence(uniform_log_q(scores), log_softmax(scores)) == pytest.approx(0.0)


def test_probabilities_multiply_along_a_path() -> None:
    """Shares 0.3, 0.6 and 0.8 among siblings give 0.3, 0.18 and 0.144, as in the paper's figure."""
    tree = plant(np.arange(8, dtype=np.int32), branching=2)
    levels = [
        np.log([0.3, 0.7]),
        np.log([0.6, 0.4, 0.5, 0.5]) + 3.0,
        np.log([0.8, 0.2, *[0.5] * 6]) - 1.0,
    ]
    log_q = top_down_log_q(levels, tree=tree, start=1)
    assert [float(np.exp(level[0])) for level in log_q] == pytest.approx([0.3, 0.18, 0.144])


@settings(max_examples=50, deadline=None)
@given(num_items=st.integers(2, 60), vacant=st.integers(0, 9), branching=st.integers(2, 5), seed=st.integers(0, 10_000))
def test_top_down_is_the_softmax_where_parents_sum_up_their_children(
    num_items: int, vacant: int, branching: int, seed: int
) -> None:
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    levels = sums_of_children(random_leaf_scores(tree, seed=seed), tree=tree)
    for scores, log_q in zip(levels, top_down_log_q(levels, tree=tree, start=1), strict=True):
        assert divergence(log_q, log_softmax(scores)) == pytest.approx(0.0, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(num_items=st.integers(2, 60), vacant=st.integers(0, 9), branching=st.integers(2, 5), seed=st.integers(0, 10_000))
def test_every_level_sums_up_to_one_and_exact_levels_cost_nothing(
    num_items: int, vacant: int, branching: int, seed: int
) -> None:
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    generator = np.random.default_rng(seed)
    levels = [
        np.where(tree.occupied(level), generator.normal(size=tree.level_sizes[level]), -np.inf)
        for level in range(1, tree.height + 1)
    ]
    start = int(generator.integers(1, tree.height + 1))
    for level, (scores, log_q) in enumerate(
        zip(levels, top_down_log_q(levels, tree=tree, start=start), strict=True), 1
    ):
        assert np.exp(log_q).sum() == pytest.approx(1.0)
        distance = divergence(log_q, log_softmax(scores))
        assert distance == pytest.approx(0.0, abs=1e-9) if level <= start else distance >= -1e-9
