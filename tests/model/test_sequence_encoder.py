"""SASRec: what it may see, what padding does, and what it learns from."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from beamtree.config import EstimatorSettings
from beamtree.errors import InputError
from beamtree.model import sequence_encoder as module
from beamtree.model.proposal import Proposal
from beamtree.model.sequence_encoder import SasRec, SequenceEncoder
from beamtree.model.softmax_loss import sampled_softmax_loss

UNEVEN = Proposal(np.array([0.4, 0.1, 0.1, 0.2, 0.1, 0.1]))


def estimator(**changes: Any) -> SasRec:
    settings = EstimatorSettings.model_validate({"width": 8, "layers": 2, "heads": 2, "dropout": 0.0} | changes)
    model = SasRec(settings, num_items=6, history_length=4, generator=torch.Generator().manual_seed(1))
    return model.eval()


def histories(*rows: list[int]) -> npt.NDArray[np.int32]:
    return np.array(rows, dtype=np.int32)


def test_a_position_sees_itself_and_what_came_before() -> None:
    model = estimator()
    base, changed = torch.tensor([[0, 1, 2, 3]]), torch.tensor([[0, 1, 2, 5]])
    before, after = model.encode(base), model.encode(changed)
    torch.testing.assert_close(before[:, :3], after[:, :3], rtol=0, atol=0)
    assert not torch.allclose(before[:, 3], after[:, 3])


def test_padding_is_never_looked_at() -> None:
    """It reads the row of item 0."""
    model, asked = estimator(), histories([-1, -1, 2, 3], [-1, -1, -1, -1])
    expected = model.expectations(asked)
    assert np.isfinite(expected).all()
    with torch.no_grad():
        model.items[0] += 10.0
    np.testing.assert_array_equal(model.expectations(asked), expected)


@pytest.mark.parametrize("items", [[2], [2, 3], [3, 2, 3], [3, 1, 2, 5]])
def test_what_is_expected_follows_from_the_latest_items_alone(items: list[int]) -> None:
    """From no more than `history_length` of them, however much padding is in front."""
    model = estimator()
    expected = model.encode(torch.tensor([items]))[0, -1]
    for padding in range(4 - len(items) + 1):
        torch.testing.assert_close(model.encode(torch.tensor([[-1] * padding + items]))[0, -1], expected)
    asked = histories([-1] * (4 - len(items)) + items)
    torch.testing.assert_close(torch.from_numpy(model.expectations(asked))[0], expected)
    for before in ([-1], [0], [5, 4, 4, 1, 0]):
        longer = np.concatenate([histories(before), asked], axis=1)
        np.testing.assert_array_equal(model.expectations(longer), model.expectations(asked))


def test_a_position_of_a_window_expects_what_the_history_cut_there_does() -> None:
    """So whatever is learned anywhere in a window holds for the histories that are asked about."""
    model = estimator()
    windows = histories([3, 1, 2, 5], [-1, 4, 4, 0], [-1, -1, -1, 2], [5, 3, 1, 2])
    encoded = model.encode(torch.from_numpy(windows).long())
    for row, position in np.argwhere(windows >= 0):
        cut = np.full((1, 4), -1, dtype=np.int32)
        cut[0, 3 - position :] = windows[row, : position + 1]
        torch.testing.assert_close(encoded[row, position], torch.from_numpy(model.expectations(cut))[0])


def test_order_is_known_by_recency_alone() -> None:
    model, asked = estimator(layers=1), histories([0, 1, 2, 3], [2, 0, 1, 3])
    first, other = model.expectations(asked)
    assert np.abs(first - other).max() > 0.01
    with torch.no_grad():
        model.get_parameter("encoder.layers.0.recency").zero_()
    first, other = model.expectations(asked)
    np.testing.assert_allclose(first, other, atol=1e-5)


def test_heads_begin_by_looking_at_the_latest_items_and_ever_further_back() -> None:
    model = estimator()
    for layer in range(2):
        recency = model.get_parameter(f"encoder.layers.{layer}.recency").detach().numpy()
        np.testing.assert_allclose(recency, [[0.0, -0.3, -0.6, -0.9], [0.0, -0.05, -0.1, -0.15]], rtol=1e-6)


def test_the_encoder_reads_any_vectors_and_never_those_that_are_absent() -> None:
    encoder = estimator().encoder
    vectors, present = torch.randn(2, 4, 8), torch.tensor([[False, False, True, True], [False] * 4])
    found = encoder.expectation(vectors, present=present)
    alone = encoder.expectation(vectors[:1, 2:], present=present[:1, 2:])
    torch.testing.assert_close(found[:1], alone)
    nothing = encoder.expectation(torch.zeros(1, 1, 8), present=torch.zeros(1, 1, dtype=torch.bool))
    torch.testing.assert_close(found[1:], nothing)


def test_names_of_stored_numbers() -> None:
    """Kernels and the ONNX graph read them by these names."""
    model = estimator(layers=1)
    block = ["attention_norm", "queries_keys_values", "merge", "network_norm", "widen", "narrow"]
    names = ["layers.0.recency", *(f"layers.0.{name}.{kind}" for name in block for kind in ("weight", "bias"))]
    names += ["final_norm.weight", "final_norm.bias"]
    assert list(model.encoder.state_dict()) == names
    assert list(model.state_dict()) == ["items", *(f"encoder.{name}" for name in names)]


def test_heads_must_share_the_width() -> None:
    with pytest.raises(InputError, match="share the width of 8 evenly, got 3"):
        SequenceEncoder(8, history_length=4, layers=1, heads=3)


def test_loss_is_the_mean_cross_entropy_of_the_targets_that_are_there() -> None:
    model = estimator()
    inputs, targets = torch.tensor([[-1, 0, 1, 2], [3, 4, 5, 0]]), torch.tensor([[-1, 1, 2, 3], [4, 5, 0, 1]])
    logits = model.encode(inputs) @ model.items.T
    expected = torch.nn.functional.cross_entropy(logits[targets >= 0], targets[targets >= 0])
    torch.testing.assert_close(model.loss(inputs, targets, proposal=UNEVEN), expected)


def test_rows_are_learned_from_the_same_whatever_they_are_encoded_with(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = torch.tensor([[3, 4, 5, 0], [-1, -1, -1, 2], [-1, -1, -1, -1], [-1, -1, 0, 1]])
    targets = torch.tensor([[4, 5, 0, 1], [-1, -1, -1, 3], [-1, -1, -1, -1], [-1, -1, 1, 2]])
    losses, gradients = [], []
    for rows_together in (1, 2, 4):
        monkeypatch.setattr(module, "ROWS_OF_LIKE_LENGTH", rows_together)
        model = estimator()
        losses.append(model.loss(inputs, targets, proposal=UNEVEN))
        gradients.append(torch.autograd.grad(losses[-1], list(model.parameters())))
    logits = model.encode(inputs) @ model.items.T
    torch.testing.assert_close(
        losses[0], torch.nn.functional.cross_entropy(logits[targets >= 0], targets[targets >= 0])
    )
    for other in (1, 2):
        torch.testing.assert_close(losses[other], losses[0])
        torch.testing.assert_close(gradients[other], gradients[0])


def test_a_sampled_loss_tells_targets_from_the_items_that_were_drawn() -> None:
    inputs, targets = torch.tensor([[-1, 0, 1, 2], [3, 4, 5, 0]]), torch.tensor([[-1, 1, 2, 3], [4, 5, 0, 1]])
    model = estimator(negatives=3)
    torch.manual_seed(5)
    loss = model.loss(inputs, targets, proposal=UNEVEN)
    torch.manual_seed(5)
    drawn, stand_for = UNEVEN.draw(3)
    vectors, labels = model.encode(inputs)[targets >= 0], targets[targets >= 0].unsqueeze(1)
    expected = sampled_softmax_loss(vectors, model.items, labels, sample=drawn, stand_for=stand_for) / len(labels)
    torch.testing.assert_close(loss, expected)
    every = list(model.parameters())
    torch.testing.assert_close(torch.autograd.grad(loss, every), torch.autograd.grad(expected, every))


def test_what_comes_next_is_what_the_last_position_expects() -> None:
    model, asked = estimator(), histories([0, 1, 2, 3], [-1, -1, 4, 5])
    encoded = model.encode(torch.from_numpy(asked).long())
    np.testing.assert_allclose(model.expectations(asked), encoded[:, -1].detach().numpy(), rtol=1e-5, atol=1e-6)


def test_several_targets_of_a_position_share_it() -> None:
    model = estimator()
    inputs, first = torch.tensor([[-1, 0, 1, 2]]), torch.tensor([[-1, 1, 2, 3]])
    second = torch.tensor([[-1, 4, 5, -1]])
    logits = model.encode(inputs)[0, 1:] @ model.items.T
    log_p = logits.log_softmax(dim=1)
    expected = -(log_p[0, [1, 4]].mean() + log_p[1, [2, 5]].mean() + log_p[2, 3]) / 3
    torch.testing.assert_close(model.loss(inputs, torch.stack([first, second], dim=2), proposal=UNEVEN), expected)


@pytest.mark.parametrize("length", [20, 69])
def test_gradients_are_the_same_bytes_each_time_on_two_threads(length: int) -> None:
    settings = EstimatorSettings(width=64, layers=1, heads=2, dropout=0.0)
    model = SasRec(settings, num_items=1682, history_length=length, generator=torch.Generator().manual_seed(1))
    inputs = torch.randint(0, 1682, (64, length), generator=torch.Generator().manual_seed(2))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = set()
        for _ in range(6):
            model.zero_grad()
            model.encode(inputs).square().sum().backward()
            gradient = model.items.grad
            assert gradient is not None
            seen.add(gradient.numpy().tobytes())
    finally:
        torch.set_num_threads(threads)
    assert len(seen) == 1
