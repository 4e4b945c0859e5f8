"""Section 4.2: the loss with rectified labels. Section 4.3: sampled softmax and its gradient."""

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.diagnostics.sampling import top_down_log_q
from beamtree.training.losses import sampled_softmax_loss
from tests.small import random_tree

Float64Array = npt.NDArray[np.float64]


def loss_of(scores: Float64Array, log_correction: Float64Array | None = None, *, weight: float = 1.0) -> float:
    """What is trained on: column 0 against the others, times its label."""
    correction = np.zeros_like(scores) if log_correction is None else log_correction
    row = torch.from_numpy(scores)[None], torch.from_numpy(correction)[None]
    return float(sampled_softmax_loss(*row, weights=torch.tensor([weight], dtype=torch.float64)))


@settings(max_examples=100, deadline=None)
@given(num_nodes=st.integers(1, 12), label=st.floats(1e-6, 50.0), seed=st.integers(0, 10_000))
def test_the_modified_loss_is_a_bregman_divergence(num_nodes: int, label: float, seed: int) -> None:
    """Proposition 2: with psi(x) = sum x ln x and g the softmax, D(e(w), g(o)) = w CE(o) + w ln w - w + 1.

    The paper has + w - 1, which its own derivation does not give (and which would make D negative for small w). For a
    given label both are constants: what is trained on, w CE(o), is the same.
    """
    scores = np.random.default_rng(seed).normal(0.0, 3.0, size=num_nodes)
    softmax = np.exp(scores - np.logaddexp.reduce(scores))
    labels = np.zeros(num_nodes)
    labels[0] = label
    psi_of_labels = label * np.log(label)
    psi_of_softmax = float((softmax * np.log(softmax)).sum())
    slope = np.log(softmax) + 1.0
    divergence = psi_of_labels - psi_of_softmax - float(slope @ (labels - softmax))
    modified = loss_of(scores, weight=label) + label * np.log(label) - label + 1.0
    assert modified == pytest.approx(divergence, rel=1e-9, abs=1e-9)
    assert divergence >= -1e-9


@settings(max_examples=60, deadline=None)
@given(num_nodes=st.integers(2, 6), draws=st.integers(1, 3), spread=st.floats(0.0, 4.0), seed=st.integers(0, 10_000))
def test_full_loss_is_at_most_the_expected_sampled_loss_and_the_divergence(
    num_nodes: int, draws: int, spread: float, seed: int
) -> None:
    """Lemma 3, with the expectation over all ways to draw; node 0 is the positive, Q any distribution of the others."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(0.0, spread, size=num_nodes)
    q = generator.dirichlet(np.ones(num_nodes - 1))
    expected = 0.0
    for drawn in product(range(1, num_nodes), repeat=draws):
        negatives = np.array(drawn)
        correction = np.append(0.0, np.log(draws * q[negatives - 1]))
        expected += float(q[negatives - 1].prod()) * loss_of(np.append(scores[0], scores[negatives]), correction)
    log_p = scores - np.logaddexp.reduce(scores)
    divergence = float((q * (np.log(q) - log_p[1:])).sum())
    assert -log_p[0] <= expected + divergence + 1e-9


def expected_gradient(scores: Float64Array, q: Float64Array, *, draws: int) -> Float64Array:
    """The mean gradient by the scores over all ways to draw from q (nodes,) without the positive, node 0."""
    negatives_q = q[1:] / q[1:].sum()
    mean = np.zeros(len(scores))
    for drawn in product(range(1, len(scores)), repeat=draws):
        columns = torch.tensor([0, *drawn])
        chosen_q = negatives_q[np.array(drawn) - 1]
        correction = torch.from_numpy(np.append(0.0, np.log(draws * chosen_q)))
        by_node = torch.from_numpy(scores).requires_grad_()
        (gradient,) = torch.autograd.grad(sampled_softmax_loss(by_node[columns][None], correction[None]), by_node)
        mean += float(chosen_q.prod()) * gradient.numpy()
    return mean


@pytest.mark.parametrize("seed", range(6))
def test_draws_by_the_softmax_are_unbiased_and_draws_down_the_tree_come_closer_than_uniform_ones(seed: int) -> None:
    """Theorem 2 wants q in proportion to exp(o). Inner scores here are those of Theorem 3, with some noise."""
    tree, generator = random_tree(9, branching=3, seed=seed), np.random.default_rng(seed)
    leaf_scores = generator.normal(0.0, 1.5, size=9)
    parents = np.logaddexp.reduceat(leaf_scores, [0, 3, 6]) + generator.normal(0.0, 0.2, size=3)
    top_down = np.exp(top_down_log_q([parents, leaf_scores], tree=tree, start=1)[-1])
    softmax = np.exp(leaf_scores - np.logaddexp.reduce(leaf_scores))
    full = softmax - np.eye(9)[0]

    def error(q: Float64Array) -> float:
        return float(np.linalg.norm(expected_gradient(leaf_scores, q, draws=2) - full) / np.linalg.norm(full))

    assert error(softmax) < 1e-12
    assert error(top_down) < 0.5 * error(np.full(9, 1 / 9))
