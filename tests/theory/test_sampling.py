"""Section 4.3.2 and its theory: drawing negatives by walking down the tree."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.diagnostics.sampling import divergence, log_softmax, top_down_log_q
from beamtree.tree.build import plant
from beamtree.tree.item_tree import ItemTree
from tests.small import random_tree
from tests.theory.level_scores import leaves_with_clear_winners, parents_from_children

Float64Array = npt.NDArray[np.float64]


def path_probabilities(levels: list[Float64Array], tree: ItemTree) -> list[Float64Array]:
    return [np.exp(log_q) for log_q in top_down_log_q(levels, tree=tree, start=1)]


def test_expanding_probabilities_multiply_along_a_path() -> None:
    """The figure: 0.3, 0.6 and 0.8 on the way to node 8 give 0.3, 0.18 and 0.144."""
    tree = plant(np.arange(8), branching=2)
    shares = [[0.3, 0.7], [0.6, 0.4, 0.5, 0.5], [0.2, 0.8, 0.9, 0.1, 0.3, 0.7, 0.5, 0.5]]
    q = path_probabilities([np.log(level) for level in shares], tree)
    on_path = {int(tree.level_offsets[level]) + node: q[level - 1][node] for level, node in ((1, 0), (2, 0), (3, 1))}
    assert on_path == pytest.approx({1: 0.3, 3: 0.18, 8: 0.144})


@settings(max_examples=50, deadline=None)
@given(num_items=st.integers(2, 80), branching=st.integers(2, 6), seed=st.integers(0, 10_000))
def test_every_level_is_a_distribution(num_items: int, branching: int, seed: int) -> None:
    """Proposition 4, whatever the scores."""
    tree = random_tree(num_items, branching=branching, seed=seed)
    generator = np.random.default_rng(seed)
    levels = [generator.normal(0.0, 3.0, size=size) for size in tree.level_sizes[1:]]
    assert [level.sum() for level in path_probabilities(levels, tree)] == pytest.approx([1.0] * tree.height)


@settings(max_examples=50, deadline=None)
@given(num_items=st.integers(2, 80), branching=st.integers(2, 6), seed=st.integers(0, 10_000))
def test_it_is_the_softmax_where_parents_weigh_what_their_children_weigh(
    num_items: int, branching: int, seed: int
) -> None:
    """Theorem 3: exp(o) in proportion to the sum over the children, with a factor of its own for each level."""
    tree = random_tree(num_items, branching=branching, seed=seed)
    generator = np.random.default_rng(seed)
    leaf_scores = generator.normal(0.0, 3.0, size=num_items)
    levels = parents_from_children(leaf_scores, tree=tree, combine=np.logaddexp)
    shifted = [scores + shift for scores, shift in zip(levels, generator.normal(size=tree.height), strict=True)]
    for scores, q in zip(shifted, path_probabilities(shifted, tree), strict=True):
        np.testing.assert_allclose(q, np.exp(log_softmax(scores)), rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    num_items=st.integers(5, 80),
    branching=st.integers(2, 4),
    gap=st.sampled_from([0.1, 1.0, 4.0, 7.0]),
    seed=st.integers(0, 10_000),
)
def test_where_parents_weigh_what_their_best_child_weighs_the_bias_is_bounded(
    num_items: int, branching: int, gap: float, seed: int
) -> None:
    """Proposition 5 and its corollary: |q - p| <= (j-1) eps / (1-eps), KL(Q||P) <= ln(1 + that N_j exp(2 B_o)).

    eps bounds what all children but the best have of their family's weight.
    """
    tree = random_tree(num_items, branching=branching, seed=seed)
    leaf_scores = leaves_with_clear_winners(tree, gap=gap, generator=np.random.default_rng(seed))
    levels = parents_from_children(leaf_scores, tree=tree, combine=np.maximum)
    epsilon = 0.0
    for level, (scores, q) in enumerate(zip(levels, path_probabilities(levels, tree), strict=True), start=1):
        p, bound = np.exp(log_softmax(scores)), (level - 1) * epsilon / (1.0 - epsilon)
        assert np.abs(q - p).max() <= bound + 1e-12
        distance = divergence(np.log(q), log_softmax(scores))
        largest = np.abs(scores).max()
        assert distance <= np.log1p(bound * len(scores) * np.exp(2.0 * largest)) + 1e-12
        # The corollary's bound is loose by orders of magnitude; Pinsker's and that of chi squared are not.
        assert 0.5 * np.abs(q - p).sum() ** 2 - 1e-12 <= distance <= np.log1p(((q - p) ** 2 / p).sum()) + 1e-12
        if level < tree.height:
            first, _ = tree.child_ranges(np.arange(len(scores)), level)
            family = np.logaddexp.reduceat(levels[level], first)
            epsilon = max(epsilon, float(1.0 - np.exp(scores - family).min()))
    if gap == 7.0:
        assert epsilon < 0.01, "a case in which the bound says something"
