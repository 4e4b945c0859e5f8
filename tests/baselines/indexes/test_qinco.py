from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from beamtree.baselines.indexes import qinco, qinco_network
from beamtree.baselines.indexes.qinco import Qinco, additive_index, residual_codebooks
from beamtree.baselines.indexes.qinco_network import QincoNetwork, squared_error, train_qinco
from beamtree.baselines.protocol import Budget
from beamtree.errors import BaselineUnavailable
from beamtree.types import AnyArray, Float32Array
from tests.baselines.indexes.communities import BUDGET, cloud

pytest.importorskip("faiss")

VECTORS = cloud().vectors


def test_it_starts_as_the_residual_quantiser_and_learns_to_do_better() -> None:
    codebooks = residual_codebooks(VECTORS, steps=2, seed=0)
    network = QincoNetwork(codebooks, blocks=1, width=16, seed=0)
    codes = network.encode(VECTORS)
    summed = sum(codebooks[step][codes[:, step]] for step in range(2))
    np.testing.assert_allclose(network.decode(codes), summed, atol=1e-5)
    before = squared_error(network, VECTORS)
    train_qinco(network, VECTORS, epochs=40, max_vectors=10**6, budget=BUDGET)
    assert squared_error(network, VECTORS) < 0.95 * before


def test_training_that_makes_it_worse_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qinco_network, "LEARNING_RATES", (10.0, 1.0))
    codebooks = residual_codebooks(VECTORS, steps=2, seed=0)
    network = QincoNetwork(codebooks, blocks=1, width=16, seed=0)
    train_qinco(network, VECTORS, epochs=2, max_vectors=10**6, budget=BUDGET)
    assert network.codebooks.detach().numpy().tobytes() == codebooks.tobytes()


def test_the_learning_rate_with_the_least_error_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever is tried first; a budget that is spent leaves it at the first."""

    def learned(*rates: float, budget: Budget = BUDGET) -> bytes:
        monkeypatch.setattr(qinco_network, "LEARNING_RATES", rates)
        network = QincoNetwork(residual_codebooks(VECTORS, steps=2, seed=0), blocks=1, width=16, seed=0)
        train_qinco(network, VECTORS, epochs=20, max_vectors=10**6, budget=budget)
        return network.codebooks.detach().numpy().tobytes()

    better = learned(1e-3)
    assert learned(10.0, 1e-3) == learned(1e-3, 10.0) == better
    spent = replace(BUDGET, seconds=0.0)
    assert learned(1e-3, 1e-4, budget=spent) == learned(1e-3, budget=spent) != better


def test_a_step_depends_on_what_is_decoded_before() -> None:
    """Codebooks of two words in one dimension; Linear([z; x]) of the second step adds 10 x: 1 + (5 + 10 * 1) = 16."""
    codebooks = np.array([[[1], [2]], [[5], [7]]], dtype=np.float32)
    network = QincoNetwork(codebooks, blocks=1, width=1, seed=0)
    with torch.no_grad():
        network.joined[0, 1, 0] = 10.0
    codes = np.array([[0, 0], [1, 1]], dtype=np.uint8)
    assert network.decode(codes).ravel().tolist() == [16.0, 29.0]
    assert network.encode(np.array([[1.2], [29.0]], dtype=np.float32)).tolist() == [[0, 0], [1, 1]]


def test_it_learns_from_no_more_vectors_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    network = QincoNetwork(residual_codebooks(VECTORS, steps=2, seed=0), blocks=1, width=4, seed=0)
    choose = network.choose

    def counted(vectors: Tensor) -> Tensor:
        batches.append(len(vectors))
        return choose(vectors)

    monkeypatch.setattr(network, "choose", counted)
    monkeypatch.setattr(qinco_network, "LEARNING_RATES", (1e-3,))
    train_qinco(network, VECTORS, epochs=10, max_vectors=768, budget=BUDGET)
    assert batches == [400, 256, 144, 256, 400], "three steps, and the judge before and after"


def test_the_additive_codebooks_are_the_least_squares_fit() -> None:
    """Two codewords of one step, used once and three times; pulled towards the start as if by one vector more."""
    codes: AnyArray = np.array([[0], [1], [1], [1]], dtype=np.uint8)
    start = np.array([[[1.0], [8.0]]], dtype=np.float32)
    vectors = np.array([[3.0], [4.0], [4.0], [4.0]], dtype=np.float32)
    index = additive_index(codes, start=start, vectors=vectors)
    one: Float32Array = np.ones((1, 1), dtype=np.float32)
    scores, items = index.search(one, 4)
    by_item = dict(zip(items[0].tolist(), scores[0].tolist(), strict=True))
    assert by_item[0] == pytest.approx((3 + 1) / 2)
    assert by_item[1] == pytest.approx((12 + 8) / 4)


def test_what_would_take_hours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qinco, "MAX_ITEMS", 399)
    with pytest.raises(BaselineUnavailable, match="at most 399 items, got 400"):
        Qinco()(VECTORS, queries=lambda _: VECTORS, budget=BUDGET)
