import dataclasses
import re

import numpy as np
import pytest
import torch

pytest.importorskip("beamtree.native._kernels")

from beamtree.errors import InputError
from beamtree.native.attention import AttentionArrays
from beamtree.native.network import Network
from tests.native.kernel_steps import score_rows
from tests.native.plain_network import PAPER, Normalisation, Shape, attention_weights, random_weights, scores

SHAPES = {
    "small": Shape(),
    "one of each": Shape(windows=(1,), width=1, attention=1, mlp=(1, 1, 1)),
    "odd": Shape(windows=(2, 1, 4), width=9, attention=17, mlp=(13, 9, 3)),
    "one layer": Shape(mlp=(11,)),
    "five layers": Shape(windows=(2, 1), width=3, attention=5, mlp=(9, 8, 5, 3, 2)),
    "paper": PAPER,
}
NODES = [1, 2, 7, 8, 9, 17, 200, 321, 700]


def pack(weights: dict[str, torch.Tensor], shape: Shape) -> Network:
    return Network.pack(weights, windows=shape.windows, normalisation=shape.normalisation)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("count", NODES)
@pytest.mark.parametrize("batch", [1, 3])
def test_attention_equals_the_formula(shape: Shape, batch: int, count: int, dtype: torch.dtype) -> None:
    weights = random_weights(shape, seed=1, dtype=dtype)
    generator = torch.Generator().manual_seed(count)
    vectors = torch.randn(batch, shape.history, shape.width, generator=generator, dtype=dtype)
    nodes = torch.randn(batch, count, shape.width, generator=generator, dtype=dtype)
    found = pack(weights, shape).attention_weights(vectors, nodes)
    expected = torch.stack([attention_weights(weights, *pair) for pair in zip(vectors, nodes, strict=True)]).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-12 if dtype == torch.float64 else 2e-5)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("count", NODES)
@pytest.mark.parametrize("batch", [1, 3])
def test_attention_gradients_equal_autograd(shape: Shape, batch: int, count: int) -> None:
    weights = random_weights(shape, seed=2, dtype=torch.float64)
    for array in weights.values():
        array.requires_grad_()
    generator = torch.Generator().manual_seed(count)
    sizes = (batch, shape.history, shape.width), (batch, count, shape.width), (batch, shape.history, count)
    vectors, nodes, incoming = (torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes)
    vectors.requires_grad_()
    nodes.requires_grad_()
    for one_history, places, pull in zip(vectors, nodes, incoming, strict=True):
        (attention_weights(weights, one_history, places) * pull).sum().backward()
    found = pack(weights, shape).attention_gradients(vectors, nodes, d_weights=incoming)
    assert vectors.grad is not None
    assert nodes.grad is not None
    np.testing.assert_allclose(found.vectors, vectors.grad.numpy(), atol=1e-10)
    np.testing.assert_allclose(found.nodes, nodes.grad.numpy(), atol=1e-10)
    for name, array in weights.items():
        if name.startswith("attention."):
            assert array.grad is not None
            np.testing.assert_allclose(found.weights[name], array.grad.numpy(), atol=1e-9, err_msg=name)


class NativeAttention(torch.autograd.Function):
    """The attention unit as an autograd function, so that torch's own gradient check can judge it."""

    @staticmethod
    def forward(ctx, shape, names, vectors, nodes, *arrays):  # type: ignore[no-untyped-def]
        ctx.network = pack(dict(zip(names, arrays, strict=True)), shape)
        ctx.names = names
        ctx.save_for_backward(vectors, nodes)
        return torch.from_numpy(ctx.network.attention_weights(vectors[None], nodes[None])[0])

    @staticmethod
    def backward(ctx, d_weights):  # type: ignore[no-untyped-def]
        vectors, nodes = ctx.saved_tensors
        found = ctx.network.attention_gradients(vectors[None], nodes[None], d_weights=d_weights.contiguous()[None])
        arrays = (torch.from_numpy(found.weights[name]) for name in ctx.names)
        return None, None, torch.from_numpy(found.vectors[0]), torch.from_numpy(found.nodes[0]), *arrays


def test_gradcheck_in_double_precision() -> None:
    shape = Shape(windows=(2, 1), width=3, attention=5)
    weights = random_weights(shape, seed=5, dtype=torch.float64)
    names = tuple(weights)
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(shape.history, shape.width, generator=generator, dtype=torch.float64, requires_grad=True)
    nodes = torch.randn(6, shape.width, generator=generator, dtype=torch.float64, requires_grad=True)
    arrays = [array.requires_grad_() if name.startswith("attention.") else array for name, array in weights.items()]
    assert torch.autograd.gradcheck(
        lambda *inputs: NativeAttention.apply(shape, names, *inputs),  # type: ignore[no-untyped-call]
        (vectors, nodes, *arrays),
        atol=1e-8,
    )


@pytest.mark.parametrize("normalisation", ["none", "layer"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("filled", ["full", "some", "empty", "one item repeated"])
def test_scores_equal_the_plain_network(shape: Shape, normalisation: Normalisation, filled: str) -> None:
    shape = dataclasses.replace(shape, normalisation=normalisation)
    weights = random_weights(shape, seed=3)
    generator = np.random.default_rng(7)
    table = generator.normal(size=(90, shape.width)).astype(np.float32)
    history = generator.integers(0, 90, shape.history)
    if filled == "some":
        history[: shape.history // 2] = -1
    elif filled == "empty":
        history[:] = -1
    elif filled == "one item repeated":
        history[:] = 5
    rows = generator.integers(0, 90, 333)
    found = score_rows(AttentionArrays(pack(weights, shape), table), rows, history_rows=history)
    tensor = torch.from_numpy(table)
    present = torch.from_numpy(history >= 0)[None]
    expected = scores(weights, shape, tensor[history.clip(min=0)][None], present, tensor[rows][None])[0]
    np.testing.assert_allclose(found, expected.numpy(), atol=2e-4)


def test_batch_norm_is_folded_into_the_layers() -> None:
    shape = Shape()
    weights = random_weights(shape, seed=4)
    generator = torch.Generator().manual_seed(1)
    folded = dict(weights)
    for layer, units in enumerate(shape.mlp):
        mean, gain, offset = (torch.randn(units, generator=generator) for _ in range(3))
        variance = torch.rand(units, generator=generator) + 0.5
        norm = {"running_mean": mean, "running_var": variance, "weight": gain, "bias": offset}
        weights |= {f"norm.{layer}.{name}": array for name, array in norm.items()}
        scale = gain / (variance + 1e-5).sqrt()
        folded[f"mlp.{layer}.weight"] = folded[f"mlp.{layer}.weight"] * scale[:, None]
        folded[f"mlp.{layer}.bias"] = (folded[f"mlp.{layer}.bias"] - mean) * scale + offset
    table = torch.randn(20, shape.width, generator=generator)
    history, rows = np.arange(shape.history), np.arange(20)
    network = Network.pack(weights, windows=shape.windows, normalisation="batch")
    found = score_rows(AttentionArrays(network, table), rows, history_rows=history)
    present = torch.ones(1, shape.history, dtype=torch.bool)
    expected = scores(folded, shape, table[history][None], present, table[None])[0]
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


def test_missing_and_misshapen_weights_are_named() -> None:
    shape = Shape()
    weights = random_weights(shape, seed=1)
    with pytest.raises(InputError, match=r"Expected the array mlp\.2\.weight of shape .* got none of that name"):
        pack({name: array for name, array in weights.items() if name != "mlp.2.weight"}, shape)
    with pytest.raises(InputError, match=r"attention\.hidden\.bias of shape \(7\), got \(6,\)"):
        pack({**weights, "attention.hidden.bias": torch.zeros(6)}, shape)


def test_flattened_weights_are_refused() -> None:
    """As many values in another shape are other weights."""
    shape = Shape()
    weights = random_weights(shape, seed=1)
    for name, array in weights.items():
        if array.ndim == 2:
            with pytest.raises(InputError, match=rf"{re.escape(name)} of shape"):
                pack({**weights, name: array.reshape(-1)}, shape)
            with pytest.raises(InputError, match=rf"{re.escape(name)} of shape"):
                pack({**weights, name: array[None]}, shape)


def test_rows_out_of_range_are_refused() -> None:
    shape = Shape()
    table = np.zeros((4, shape.width), dtype=np.float32)
    attention = AttentionArrays(pack(random_weights(shape, seed=1), shape), table)
    history = np.zeros(shape.history, dtype=np.int64)
    with pytest.raises(ValueError, match=r"node_rows: expected values in 0 \.\. 3, got 4 at position 1"):
        score_rows(attention, np.array([0, 4]), history_rows=history)
    with pytest.raises(ValueError, match="history_rows"):
        score_rows(attention, np.array([0]), history_rows=history - 2)
