"""The preference network's small weights, packed for the kernels, and what the kernels compute of it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from beamtree.errors import InputError
from beamtree.native import _kernels
from beamtree.native.offset_arrays import OFFSET_TABLES, OffsetArrays
from beamtree.native.shapes import checked_shape
from beamtree.types import AnyArray

BATCH_NORM_EPSILON = 1e-5
TABLE_NAMES = ("node_table", "item_table")


class Array(Protocol):
    """A NumPy array or a torch tensor on the CPU: the kernels read both where they lie."""

    def __dlpack_device__(self) -> Any:
        """The device of the array."""
        ...


@dataclass(frozen=True)
class AttentionGradients:
    """Gradients of sum(d_weights * weights) by vectors (batch, positions, size), nodes (batch, n, size) and weights."""

    vectors: AnyArray
    nodes: AnyArray
    weights: dict[str, AnyArray]


@dataclass(frozen=True)
class Network:
    """The small weights in the kernels' own order. A copy: pack again after the weights have changed.

    offsets: what requests add to the first layer; None where the network reads nothing beside a history.
    """

    kernel: _kernels.AnyNetwork
    size: int
    dtype: np.dtype[Any]
    offsets: OffsetArrays | None = None

    @classmethod
    def pack(
        cls,
        weights: Mapping[str, Any],
        *,
        windows: Sequence[int],
        normalisation: Literal["none", "layer", "batch"] = "none",
    ) -> Network:
        """From arrays named like the network's state; float32, or float64 for checks of the kernels.

        "batch" folds the running statistics into the layers, which is right for scoring and wrong for training.
        windows: history positions per window, oldest first; they add up to the history. Tables and other names are
        left aside. InputError where an array is missing or of another shape.
        """
        arrays = {name: plain(array) for name, array in weights.items() if name not in TABLE_NAMES}
        _check_shapes(arrays, num_windows=len(windows), normalisation=normalisation)
        if normalisation == "batch":
            arrays = _fold_batch_norm(arrays)
        hidden = np.asarray(arrays["attention.hidden.weight"])
        pack = _kernels.pack_float64 if hidden.dtype == np.float64 else _kernels.pack_float32
        units, size = hidden.shape[0], hidden.shape[1] // 3
        kernel = pack(
            arrays,
            windows=list(windows),
            width=size,
            attention=units,
            mlp=[len(arrays[f"mlp.{layer}.bias"]) for layer in range(num_hidden_layers(arrays))],
            layer_norm=normalisation == "layer",
        )
        tables = {name: np.asarray(arrays[name]) for name in OFFSET_TABLES if name in arrays}
        offsets = OffsetArrays.of(tables, width=len(arrays["mlp.0.bias"]))
        return cls(kernel=kernel, size=size, dtype=hidden.dtype, offsets=offsets)

    def attention_weights(self, vectors: Array, nodes: Array) -> AnyArray:
        """Weights (batch, positions, n) of history vectors (batch, positions, size) for nodes (batch, n, size)."""
        histories, places = plain(vectors), plain(nodes)
        weights = np.empty((*histories.shape[:2], places.shape[1]), dtype=self.dtype)
        _kernels.attention_forward(self.kernel, histories, places, weights)
        return weights

    def attention_gradients(self, vectors: Array, nodes: Array, *, d_weights: Array) -> AttentionGradients:
        """How sum(d_weights * attention_weights(vectors, nodes)) moves; d_weights: (batch, positions, n)."""
        found = _kernels.attention_backward(self.kernel, plain(vectors), plain(nodes), plain(d_weights))
        return AttentionGradients(*found)


def num_hidden_layers(arrays: Mapping[str, Any]) -> int:
    """Hidden layers of a perceptron by its slopes, one for each; InputError where it has none."""
    layers = checked_shape(arrays, "mlp.slopes", (None,))[0]
    if layers == 0:
        raise InputError("Expected a slope for each hidden layer in mlp.slopes, got none.")
    return layers


def plain(array: Any) -> Any:
    """The array itself; of a torch parameter its data, without a copy."""
    return array.detach() if hasattr(array, "detach") else array


def _check_shapes(
    arrays: Mapping[str, Any], *, num_windows: int, normalisation: Literal["none", "layer", "batch"]
) -> None:
    """InputError where an array is missing or of another shape: the kernels count values, they do not know shapes."""
    units, inputs = checked_shape(arrays, "attention.hidden.weight", (None, None))
    size = inputs // 3
    hidden = range(num_hidden_layers(arrays))
    widths = [
        (num_windows + 1) * size,
        *(checked_shape(arrays, f"mlp.{layer}.bias", (None,))[0] for layer in hidden),
        1,
    ]
    expected: dict[str, tuple[int, ...]] = {
        "attention.hidden.weight": (units, 3 * size),
        "attention.hidden.bias": (units,),
        "attention.hidden_slope": (1,),
        "attention.output.weight": (1, units),
        "attention.output.bias": (1,),
        "attention.output_slope": (1,),
    }
    for layer in range(len(widths) - 1):
        expected[f"mlp.{layer}.weight"] = (widths[layer + 1], widths[layer])
        expected[f"mlp.{layer}.bias"] = (widths[layer + 1],)
    statistics = {"none": (), "layer": ("weight", "bias"), "batch": ("weight", "bias", "running_mean", "running_var")}
    for layer in hidden:
        for name in statistics[normalisation]:
            expected[f"norm.{layer}.{name}"] = (widths[layer + 1],)
    for name, shape in expected.items():
        checked_shape(arrays, name, shape)


def _fold_batch_norm(arrays: dict[str, Any]) -> dict[str, Any]:
    folded = {name: np.asarray(array) for name, array in arrays.items() if not name.startswith("norm.")}
    for layer in range(num_hidden_layers(arrays)):
        mean, variance, gain, offset = (
            np.asarray(arrays[f"norm.{layer}.{name}"]) for name in ("running_mean", "running_var", "weight", "bias")
        )
        scale = gain / np.sqrt(variance + BATCH_NORM_EPSILON)
        weight, bias = folded[f"mlp.{layer}.weight"], folded[f"mlp.{layer}.bias"]
        folded[f"mlp.{layer}.weight"] = np.ascontiguousarray(weight * scale[:, None], dtype=weight.dtype)
        folded[f"mlp.{layer}.bias"] = ((bias - mean) * scale + offset).astype(weight.dtype)
        if layer == 0:
            tables = {name: folded[name] for name in OFFSET_TABLES if name in folded}
            folded |= {name: (table * scale).astype(table.dtype) for name, table in tables.items()}
    return folded
