"""Sampling down the tree: probabilities are products of local softmaxes, and the correction says so."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from beamtree.diagnostics.sampling import top_down_log_q
from beamtree.model import scoring
from beamtree.model.scoring import prepare_history
from beamtree.training.losses import sampled_softmax_loss
from beamtree.training.negatives import Candidates, Draws, UniformNegatives
from beamtree.training.paths import _choose
from beamtree.training.tree_negatives import TreeNegatives, TreeSampler
from research.negatives import PathSampler
from tests.small import model_settings, random_histories, random_tree, score_of, stirred_model
from tests.training.path_rule import assert_product_rule, level_scores, path_probabilities
from tests.training.runs import batch_from


def test_path_probabilities_multiply_and_each_level_sums_to_one() -> None:
    """The paper's illustration: 0.3, then 0.6, then 0.8 give 0.3, 0.18 and 0.144."""
    tree = random_tree(8, branching=2, seed=0)
    local = {1: [0.3, 0.7], 2: [0.6, 0.4, 0.5, 0.5], 3: [0.2, 0.8, 0.9, 0.1, 0.3, 0.7, 0.5, 0.5]}
    scores = [np.zeros(1)] + [np.log(local[level]) for level in (1, 2, 3)]
    of_diagnostics = [np.ones(1), *(np.exp(log_q) for log_q in top_down_log_q(scores[1:], tree=tree, start=1))]
    for q in (path_probabilities(tree, scores, first=0), of_diagnostics):
        assert [q[1][0], q[2][0], q[3][1]] == pytest.approx([0.3, 0.18, 0.144])
        assert [q[level].sum() for level in (1, 2, 3)] == pytest.approx([1.0, 1.0, 1.0])


@settings(max_examples=25, deadline=None)
@given(
    num_items=st.integers(2, 60),
    vacant=st.integers(0, 12),
    branching=st.integers(2, 5),
    count=st.integers(1, 9),
    last_levels=st.sampled_from([None, 1, 2, 3]),
    seed=st.integers(0, 10_000),
)
def test_corrections_are_those_of_the_product_rule(
    num_items: int, vacant: int, branching: int, count: int, last_levels: int | None, seed: int
) -> None:
    assert_product_rule(
        TreeSampler(count),
        count=count,
        num_items=num_items,
        vacant=vacant,
        branching=branching,
        attention_levels=last_levels,
        seed=seed,
    )


@pytest.mark.parametrize("normalisation", ["none", "batch"])
def test_many_instances_are_scored_in_blocks_and_drawn_the_same(
    normalisation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = random_tree(30, branching=3, seed=1)
    model = stirred_model(model_settings(normalisation=normalisation), tree, seed=2)
    histories = random_histories(9, length=5, num_items=30, generator=np.random.default_rng(0))
    batch = batch_from(histories, np.arange(9, dtype=np.int32))

    def drawn() -> Candidates:
        sampler = TreeNegatives(score_of(model), count=3)
        return sampler.draw(batch, generator=np.random.default_rng(1))

    prepared: list[int] = []

    def noted(*arguments: Any, **options: Any) -> Any:
        prepared.append(len(arguments[1]))
        return prepare_history(*arguments, **options)

    monkeypatch.setattr(scoring, "prepare_history", noted)
    whole = drawn()
    assert set(prepared) == {9}
    prepared.clear()
    monkeypatch.setattr(scoring, "INTERMEDIATES_AT_A_TIME", 200)
    in_blocks = drawn()
    assert max(prepared) < 9
    np.testing.assert_array_equal(in_blocks.node_rows, whole.node_rows)
    np.testing.assert_allclose(in_blocks.log_correction, whole.log_correction, atol=1e-5)


@pytest.mark.parametrize("attention_levels", [None, 2])
def test_draws_follow_the_product_rule(attention_levels: int | None) -> None:
    tree = random_tree(12, branching=3, seed=1)
    model = stirred_model(model_settings(attention_levels=attention_levels), tree, seed=2)
    history = np.array([-1, 3, 1, 4, 1], dtype=np.int32)
    repeats, count = 400, 3
    batch = batch_from(np.tile(history, (repeats, 1)), np.full(repeats, 5, dtype=np.int32))
    candidates = TreeNegatives(score_of(model), count=count).draw(batch, generator=np.random.default_rng(3))

    leaves = candidates.node_rows[-1, :, 1:] - tree.level_offsets[tree.height]
    drawn = np.bincount(leaves[leaves >= 0], minlength=12) / (repeats * count)
    scores = level_scores(model, tree, history)
    if attention_levels is not None:
        scores[2] = np.zeros(tree.level_sizes[2])
    q = path_probabilities(tree, scores, first=2)[tree.height]
    q[tree.leaf_of_item[5]] = 0.0
    np.testing.assert_allclose(drawn, q, atol=0.05)
    assert np.abs(drawn - 1 / 12).max() > 0.05


def test_a_choice_is_always_one_of_the_choices() -> None:
    rounded = np.log(np.array([0.333333, 0.333333, 0.333333], dtype=np.float32))
    uniform = np.array([0.0, 0.3, 0.4, 0.7, np.nextafter(1.0, 0.0)])
    assert _choose(rounded, uniform=uniform).tolist() == [0, 0, 1, 2, 2]


def test_gradients_of_draws_approach_that_of_the_full_softmax_and_exact_draws_are_unbiased() -> None:
    """On the leaves, for one history many times over; a row whose every draw was the positive has no gradient."""
    tree = random_tree(27, branching=3, seed=0)
    model = stirred_model(model_settings(), tree, seed=3)
    history = np.array([-1, 3, 1, 4, 1], dtype=np.int32)
    batch = batch_from(np.tile(history, (6000, 1)), np.full(6000, 5, dtype=np.int32))
    with torch.no_grad():
        model.mlp.linear(3).weight *= 1.5 / float(level_scores(model, tree, history)[tree.height].std())
    positive = int(tree.leaf_of_item[5])
    scores = torch.from_numpy(level_scores(model, tree, history)[tree.height]).requires_grad_()
    (full,) = torch.autograd.grad(functional.cross_entropy(scores[None], torch.tensor([positive])), scores)

    def error(draws: Draws) -> float:
        candidates = draws.draw(batch, generator=np.random.default_rng(8))
        rows = candidates.node_rows[-1]
        leaves = torch.from_numpy(rows[(rows >= 0).sum(axis=1) > 1] - tree.level_offsets[tree.height])
        correction = torch.from_numpy(candidates.log_correction[-1][(rows >= 0).sum(axis=1) > 1])
        drawn = scores[leaves.clamp(min=0)].masked_fill(leaves < 0, -torch.inf)
        (gradient,) = torch.autograd.grad(sampled_softmax_loss(drawn, correction), scores)
        return float((gradient - full).norm() / full.norm())

    few, many = (
        [
            error(UniformNegatives(tree, counts=np.full(tree.height, count))),
            error(TreeNegatives(score_of(model), count=count)),
            error(PathSampler(count, start="every").draws(score_of(model))),
        ]
        for count in (2, 20)
    )
    assert few[2] < 0.03 < min(few[:2])
    assert max(many) < 0.5 * min(few[:2])
