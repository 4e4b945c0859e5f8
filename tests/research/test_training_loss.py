"""The training loss of the bound's first term."""

import numpy as np
import pytest

from beamtree.diagnostics.levels import measure_levels
from beamtree.diagnostics.sampling import divergence, log_softmax, uniform_log_q
from research.training_loss import level_losses, sampled_softmax_loss
from tests.diagnostics.levels_by_hand import plan_for, random_leaf_scores, scorer, sums_of_children
from tests.small import random_tree


def test_training_loss_takes_small_levels_whole_and_estimates_large_ones() -> None:
    tree = random_tree(64, branching=2, seed=2)
    levels = sums_of_children(random_leaf_scores(tree, seed=3), tree=tree)
    full = measure_levels(scorer(levels), target=5, plan=plan_for(tree), generator=np.random.default_rng(0)).loss
    for exact_nodes, tolerance in ((2**14, 1e-3), (8, 1e-2)):
        plan = plan_for(tree, negatives=3, exact_nodes=exact_nodes, draws=4000)
        # Parents sum up their children, so top-down draws follow the softmax and sampled losses are exact.
        losses = level_losses(scorer(levels), target=5, plan=plan, generator=np.random.default_rng(0))
        assert losses == pytest.approx(full, abs=tolerance)


def test_draws_by_the_softmax_give_the_full_loss_whatever_they_are() -> None:
    """With q in proportion to exp(o), every corrected negative is the same number, and the loss is exact."""
    scores = np.array([0.5, -1.0, 2.0, 0.0, 1.5])
    for seed in range(5):
        loss = sampled_softmax_loss(
            scores, log_softmax(scores), positive=2, count=3, generator=np.random.default_rng(seed)
        )
        assert loss == pytest.approx(-log_softmax(scores)[2])


def test_full_loss_is_at_most_the_expected_sampled_loss_and_the_divergence() -> None:
    """Lemma 3, with the expectation as a mean over many draws of uniform negatives."""
    generator = np.random.default_rng(1)
    scores = generator.normal(0.0, 2.0, size=40)
    log_q = uniform_log_q(scores)
    sampled = np.mean(
        [sampled_softmax_loss(scores, log_q, positive=3, count=5, generator=generator) for _ in range(4000)]
    )
    full = -log_softmax(scores)[3]
    assert sampled < full
    assert full <= sampled + divergence(log_q, log_softmax(scores))
