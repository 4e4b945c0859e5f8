from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from beamtree.config import ModelSettings
from beamtree.model import scoring
from beamtree.model.scoring import FirstLayer, first_layer_in_blocks
from tests.small import model_settings, random_tree, stirred_model

MODEL_SETTINGS = st.builds(
    model_settings,
    embedding_dim=st.integers(1, 7),
    windows=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    attention_hidden=st.integers(1, 6),
    layers=st.lists(st.integers(4, 9), min_size=1, max_size=5).map(tuple),
    normalisation=st.sampled_from(["none", "layer", "batch"]),
    dropout=st.sampled_from([0.0, 0.3]),
)


class Question:
    """A random model with random histories, some empty, and random nodes, some absent."""

    def __init__(self, sizes: ModelSettings, *, rows: int, columns: int, seed: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.model = stirred_model(sizes, random_tree(6, branching=2, seed=seed), seed=seed).to(dtype)
        shape = (rows, sizes.attention_history)
        self.history = torch.randn(*shape, sizes.embedding_dim, generator=generator, dtype=dtype)
        self.nodes = torch.randn(rows, columns, sizes.embedding_dim, generator=generator, dtype=dtype)
        self.present = torch.rand(shape, generator=generator) < 0.7
        self.present[0] = False
        self.candidates = torch.rand(rows, columns, generator=generator) < 0.8
        self.candidates[0, :2] = True
        for tensor in (self.history, self.nodes):
            tensor.requires_grad_()

    def first_layer(self) -> FirstLayer:
        return FirstLayer(self.model.attention, self.model.mlp.linear(0), self.model.windows)

    def plain(self) -> Tensor:
        scores: Tensor = self.model(
            self.history,
            self.nodes,
            present=self.present,
            candidates=self.candidates,
            dropout_generator=torch.Generator().manual_seed(1),
        )
        return scores

    def factored(self) -> Tensor:
        first_layer = first_layer_in_blocks(self.first_layer(), self.history, self.nodes, present=self.present)
        return self.model.score_first_layer(
            first_layer, candidates=self.candidates, dropout_generator=torch.Generator().manual_seed(1)
        )

    def gradients(self, scores: Tensor) -> dict[str, Tensor]:
        """Of a weighted sum of the scores, by every weight, the histories and the nodes."""
        leaves = {"history": self.history, "nodes": self.nodes, **dict(self.model.named_parameters())}
        found = scores[self.candidates]
        weights = torch.linspace(-1.0, 1.0, found.numel(), dtype=found.dtype)
        gradients = torch.autograd.grad((weights * found).sum(), list(leaves.values()), allow_unused=True)
        return {name: gradient for name, gradient in zip(leaves, gradients, strict=True) if gradient is not None}


@settings(max_examples=25, deadline=None)
@given(sizes=MODEL_SETTINGS, rows=st.integers(1, 4), columns=st.integers(2, 6), seed=st.integers(0, 10_000))
def test_factored_scores_and_gradients_equal_the_plain_ones(
    sizes: ModelSettings, rows: int, columns: int, seed: int
) -> None:
    question = Question(sizes, rows=rows, columns=columns, seed=seed, dtype=torch.float64)
    plain, factored = question.plain(), question.factored()
    torch.testing.assert_close(factored, plain, rtol=1e-10, atol=1e-10)
    expected, found = question.gradients(plain), question.gradients(factored)
    assert expected.keys() == found.keys() >= {"history", "nodes", "mlp.0.weight", "attention.hidden.weight"}
    for name, gradient in expected.items():
        scale = max(1.0, float(gradient.abs().max()))
        assert float((gradient - found[name]).abs().max()) <= 1e-9 * scale, name


@settings(max_examples=15, deadline=None)
@given(sizes=MODEL_SETTINGS, seed=st.integers(0, 10_000))
def test_in_single_precision_the_two_agree_within_rounding(sizes: ModelSettings, seed: int) -> None:
    single = Question(sizes, rows=3, columns=5, seed=seed, dtype=torch.float32)
    with torch.no_grad():
        plain, factored = single.plain(), single.factored()
    scale = plain[single.candidates].abs().max().clamp(min=1.0)
    assert ((plain - factored)[single.candidates].abs() <= 2e-4 * scale).all()
    assert torch.equal(plain == -torch.inf, ~single.candidates)
    assert torch.equal(factored == -torch.inf, ~single.candidates)


@pytest.mark.parametrize("normalisation", ["none", "layer", "batch"])
def test_padding_contributes_exactly_nothing(normalisation: str) -> None:
    sizes = model_settings(normalisation=normalisation)
    question = Question(sizes, rows=4, columns=5, seed=3, dtype=torch.float32)
    before = question.plain(), question.factored()
    with torch.no_grad():
        question.history[~question.present] = torch.tensor([1e3, -2e3, 5.0, 0.0])
    after = question.plain(), question.factored()
    for old, new in zip(before, after, strict=True):
        assert torch.equal(old, new)
    for scores in after:
        history_gradient = torch.autograd.grad(scores[question.candidates].sum(), question.history)[0]
        assert not history_gradient[~question.present].any()
        assert history_gradient[question.present].any()


@pytest.mark.parametrize("at_a_time", [1, 250, 10**9])
@pytest.mark.parametrize("normalisation", ["none", "batch"])
def test_blocks_change_neither_scores_nor_gradients(
    monkeypatch: pytest.MonkeyPatch, at_a_time: int, normalisation: Any
) -> None:
    """Seven rows: one by one, a few together, or all at once."""
    monkeypatch.setattr(scoring, "INTERMEDIATES_AT_A_TIME", at_a_time)
    sizes = model_settings(normalisation=normalisation)
    question = Question(sizes, rows=7, columns=6, seed=3, dtype=torch.float64)
    question.model.train()
    expected = question.gradients(question.factored())
    first_layer = first_layer_in_blocks(
        question.first_layer(), question.history, question.nodes, present=question.present
    )
    found = question.gradients(question.model.score_first_layer(first_layer, candidates=question.candidates))
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name])
