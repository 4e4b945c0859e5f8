"""Sequence encoders and the model of the next item: what they may see, what padding does, what they learn from."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from beamtree.errors import InputError
from beamtree.model.encoders import encoder_like
from beamtree.model.next_item import NextItemModel
from beamtree.model.packing import Packing
from beamtree.model.proposal import Proposal
from beamtree.model.self_attention import SelfAttention
from beamtree.model.sequence_encoder import drop_out
from beamtree.model.softmax_loss import sampled_softmax_loss
from beamtree.native.encoder_arrays import encoder_sizes
from tests.small import encoder_settings

UNEVEN = Proposal(np.array([0.4, 0.1, 0.1, 0.2, 0.1, 0.1]))


@pytest.fixture(params=["gru", "self-attention"])
def kind(request: pytest.FixtureRequest) -> str:
    """Of an encoder."""
    return str(request.param)


def estimator(kind: str, **changes: Any) -> NextItemModel:
    sizes = {"encoder": kind, "width": 8, "layers": 2, "dropout": 0.0}
    settings = encoder_settings(**(sizes | changes))
    model = NextItemModel(settings, num_items=6, history_length=4, generator=torch.Generator().manual_seed(1))
    return model.eval()


def encode(model: NextItemModel, inputs: list[int]) -> Tensor:
    """What each position of a history expects next, (positions, width)."""
    packing = Packing(np.array([len(inputs)]), device=torch.device("cpu"))
    return model.encoder.packed(model.items[torch.tensor(inputs)], packing=packing)


def loss_of(
    model: NextItemModel, *windows: tuple[list[int], list[list[int]]], seed: int = 5, seen_count: bool = True
) -> Tensor:
    """The loss of windows, each with its inputs and the targets of each of these."""
    return model.loss(
        np.concatenate([np.array(inputs, dtype=np.int32) for inputs, _ in windows]),
        np.concatenate([np.array(targets, dtype=np.int32) for _, targets in windows]),
        lengths=np.array([len(inputs) for inputs, _ in windows]),
        proposal=UNEVEN,
        generator=torch.Generator().manual_seed(seed),
        seen_count=seen_count,
    )


def histories(*rows: list[int]) -> npt.NDArray[np.int32]:
    return np.array(rows, dtype=np.int32)


def test_a_position_sees_itself_and_what_came_before(kind: str) -> None:
    model = estimator(kind)
    before, after = encode(model, [0, 1, 2, 3]), encode(model, [0, 1, 2, 5])
    torch.testing.assert_close(before[:3], after[:3], rtol=0, atol=0)
    assert not torch.allclose(before[3], after[3])


def test_places_are_relative_to_each_other() -> None:
    """Two items look at each other the same way, wherever they stand; what came before is looked at by its age."""
    model = estimator("self-attention")
    short = model.scores(histories([-1, -1, 2, 3]))
    np.testing.assert_allclose(model.scores(histories([2, 3])), short, rtol=1e-5)
    with torch.no_grad():
        for layer in model.encoder.get_submodule("layers").children():
            layer.get_parameter("recency")[:, 2:] += 10.0
    np.testing.assert_array_equal(model.scores(histories([-1, -1, 2, 3])), short)
    assert np.isfinite(model.scores(histories([-1, -1, -1, -1]))).all()


def test_the_encoder_reads_any_vectors_and_never_those_that_are_absent(kind: str) -> None:
    encoder = estimator(kind).encoder
    vectors, present = torch.randn(2, 4, 8), torch.tensor([[False, False, True, True], [False] * 4])
    found = encoder.expectation(vectors, present=present)
    alone = encoder.expectation(vectors[:1, 2:], present=present[:1, 2:])
    torch.testing.assert_close(found[:1], alone)
    nothing = encoder.expectation(torch.ones(1, 1, 8), present=torch.zeros(1, 1, dtype=torch.bool))
    torch.testing.assert_close(found[1:], nothing)


def test_stored_numbers_say_what_they_belong_to(kind: str) -> None:
    """Kernels and the ONNX graph find kind and sizes by the names and shapes of the arrays."""
    model = estimator(kind, width=6, layers=3)
    arrays = {f"encoder.{name}": tensor.numpy() for name, tensor in model.encoder.state_dict().items()}
    sizes = encoder_sizes(arrays, width=6)
    assert (sizes.width, sizes.layers, sizes.history_length) == (6, 3, 4)
    assert {name: array.shape for name, array in arrays.items() if name != "encoder.length"} == dict(sizes.shapes())
    again = encoder_like(arrays, width=6)
    again.load_state_dict(model.encoder.state_dict())
    vectors, present = torch.randn(2, 4, 6), torch.ones(2, 4, dtype=torch.bool)
    found, expected = (each.expectation(vectors, present=present) for each in (again, model.encoder))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_heads_must_share_the_width() -> None:
    with pytest.raises(InputError, match="share the width of 8 evenly, got 3"):
        SelfAttention(8, history_length=4, layers=1, heads=3)


FIRST, SECOND = ([0, 1, 2], [[1], [2], [3]]), ([3, 4, 5, 0], [[4], [5], [0], [1]])


def vectors_and_labels(model: NextItemModel) -> tuple[Tensor, Tensor]:
    """What the positions of both windows expect next, and their targets (positions, 1)."""
    vectors = torch.cat([encode(model, inputs) for inputs, _ in (FIRST, SECOND)])
    return vectors, torch.tensor([target for _, targets in (FIRST, SECOND) for target in targets])


def test_loss_is_the_mean_cross_entropy_of_the_targets(kind: str) -> None:
    model = estimator(kind)
    vectors, labels = vectors_and_labels(model)
    expected = functional.cross_entropy(vectors @ model.items.T, labels[:, 0])
    loss = loss_of(model, FIRST, SECOND)
    torch.testing.assert_close(loss, expected)
    every = list(model.parameters())
    torch.testing.assert_close(torch.autograd.grad(loss, every), torch.autograd.grad(expected, every))


def test_a_sampled_loss_tells_targets_from_the_items_that_were_drawn(kind: str) -> None:
    model = estimator(kind, negatives=3)
    loss = loss_of(model, FIRST, SECOND, seed=5)
    drawn, stand_for = UNEVEN.draw(3, generator=torch.Generator().manual_seed(5))
    vectors, labels = vectors_and_labels(model)
    expected = sampled_softmax_loss(vectors, model.items, labels, sample=drawn, stand_for=stand_for) / len(labels)
    torch.testing.assert_close(loss, expected)
    every = dict(model.named_parameters())
    found = dict(zip(every, torch.autograd.grad(loss, list(every.values())), strict=True))
    assert found["items"].is_sparse
    assert model.sparse_tables == ("items",)
    theirs = torch.autograd.grad(expected, list(every.values()))
    for name, reference in zip(every, theirs, strict=True):
        torch.testing.assert_close(found[name].to_dense(), reference)


def test_more_negatives_than_items_are_all_items(kind: str) -> None:
    every, drawn = estimator(kind, negatives="all"), estimator(kind, negatives=6)
    assert (every.negatives, drawn.negatives, every.sparse_tables) == (None, None, ())
    torch.testing.assert_close(loss_of(drawn, FIRST), loss_of(every, FIRST))


def test_targets_need_not_be_told_from_what_was_seen_before(kind: str) -> None:
    """Of 6 items the third position of the first window has seen 0, 1 and 2; a target that was seen counts anyway."""
    windows, again = (FIRST, SECOND), ([0, 1], [[1], [0]])
    model = estimator(kind)
    losses = []
    for inputs, targets in (*windows, again):
        scores = encode(model, inputs) @ model.items.T
        for place, (target,) in enumerate(targets):
            seen = list(set(inputs[: place + 1]) - {target})
            masked = scores[place].index_fill(0, torch.tensor(seen, dtype=torch.int64), -torch.inf)
            losses.append(-masked.log_softmax(dim=0)[target])
    found = loss_of(model, *windows, again, seen_count=False)
    torch.testing.assert_close(found, torch.stack(losses).mean())
    every = Proposal(np.full(6, 1 / 6))
    sampled = estimator(kind, negatives=5)
    drawn, stand_for = every.draw(5, generator=torch.Generator().manual_seed(5))
    vectors, labels = vectors_and_labels(sampled)
    left_out = torch.tensor([[0, -1, -1, -1], [1, 0, -1, -1], [2, 1, 0, -1], [3] + [-1] * 3, [4, 3, -1, -1]])
    left_out = torch.cat([left_out, torch.tensor([[5, 4, 3, -1], [0, 5, 4, 3]])])
    expected = sampled_softmax_loss(
        vectors, sampled.items, labels, sample=drawn, stand_for=stand_for, left_out=left_out
    ) / len(labels)
    by_model = sampled.loss(
        np.array([0, 1, 2, 3, 4, 5, 0], dtype=np.int32),
        labels.numpy().astype(np.int32),
        lengths=np.array([3, 4]),
        proposal=every,
        generator=torch.Generator().manual_seed(5),
        seen_count=False,
    )
    torch.testing.assert_close(by_model, expected)


def test_what_comes_next_is_what_the_last_position_expects(kind: str) -> None:
    model = estimator(kind)
    expected = torch.stack([encode(model, [0, 1, 2, 3])[-1], encode(model, [4, 5])[-1]])
    found = model.expectations(histories([0, 1, 2, 3], [-1, -1, 4, 5]))
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_several_targets_of_a_position_share_it(kind: str) -> None:
    model = estimator(kind)
    log_p = (encode(model, [0, 1, 2]) @ model.items.T).log_softmax(dim=1)
    expected = -(log_p[0, [1, 4]].mean() + log_p[1, [2, 5]].mean() + log_p[2, 3]) / 3
    torch.testing.assert_close(loss_of(model, ([0, 1, 2], [[1, 4], [2, 5], [3, -1]])), expected)


def test_dropout_leaves_out_its_share_and_keeps_the_mean() -> None:
    ones = torch.ones(999, 101)
    dropped = drop_out(ones, share=0.2, generator=torch.Generator().manual_seed(1))
    assert dropped.unique().tolist() == pytest.approx([0.0, 1.25], rel=1e-4)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.01)
    assert (dropped == 0).float().mean(dim=0).std().item() < 0.02, "no column is dropped more than others"
    again = drop_out(ones, share=0.2, generator=torch.Generator().manual_seed(1))
    assert torch.equal(dropped, again)
    assert torch.equal(drop_out(ones, share=0.0, generator=torch.Generator().manual_seed(1)), ones)


def test_dropout_is_for_training_alone(kind: str) -> None:
    model = estimator(kind, dropout=0.5)
    assert torch.equal(loss_of(model, FIRST, seed=1), loss_of(model, FIRST, seed=2))
    model.train()
    assert not torch.equal(loss_of(model, FIRST, seed=1), loss_of(model, FIRST, seed=2))
    assert torch.equal(loss_of(model, FIRST, seed=1), loss_of(model, FIRST, seed=1))


@pytest.mark.parametrize("negatives", ["all", 200])
def test_gradients_are_the_same_bytes_each_time_on_two_threads(kind: str, negatives: str | int) -> None:
    settings = encoder_settings(encoder=kind, width=64, layers=1, negatives=negatives)
    model = NextItemModel(
        settings, num_items=1682, history_length=69, generator=torch.Generator().manual_seed(1)
    ).train()
    draws = np.random.default_rng(2)
    lengths = draws.integers(1, 70, size=64)
    inputs, targets = (draws.integers(1682, size=(lengths.sum(), each)).astype(np.int32) for each in (1, 5))
    proposal = Proposal.half_by_frequency(np.bincount(inputs[:, 0], minlength=1682))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = set()
        for _ in range(6):
            generator = torch.Generator().manual_seed(3)
            loss = model.loss(inputs[:, 0], targets, lengths=lengths, proposal=proposal, generator=generator)
            found = torch.autograd.grad(loss, list(model.parameters()))
            seen.add(b"".join(gradient.to_dense().numpy().tobytes() for gradient in found))
    finally:
        torch.set_num_threads(threads)
    assert len(seen) == 1
