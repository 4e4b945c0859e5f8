"""Sequence encoders as stored arrays: kind, sizes, and names of the arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from beamtree.errors import InputError
from beamtree.native.shapes import checked_shape
from beamtree.types import AnyArray

Shapes = Iterator[tuple[str, tuple[int, ...]]]
"""What the arrays of numbers are called, and their shapes."""

GATES = 3
"""Of a recurrent layer: reset, update and the new state, in this order."""


@dataclass(frozen=True)
class SelfAttentionSizes:
    """width: of vectors; history_length: number of latest items that are read; heads share the width evenly."""

    width: int
    history_length: int
    layers: int
    heads: int

    def shapes(self) -> Shapes:
        """Of all its numbers."""
        width = self.width
        for layer in range(self.layers):
            block = f"encoder.layers.{layer}"
            yield f"{block}.recency", (self.heads, self.history_length)
            for name in ("attention_norm", "network_norm"):
                yield f"{block}.{name}.weight", (width,)
                yield f"{block}.{name}.bias", (width,)
            for name, outputs, inputs in (
                ("queries_keys_values", 3 * width, width),
                ("merge", width, width),
                ("widen", 4 * width, width),
                ("narrow", width, 4 * width),
            ):
                yield f"{block}.{name}.weight", (outputs, inputs)
                yield f"{block}.{name}.bias", (outputs,)
        yield "encoder.final_norm.weight", (width,)
        yield "encoder.final_norm.bias", (width,)


@dataclass(frozen=True)
class RecurrentSizes:
    """width: of vectors; history_length: number of latest items that are read; hidden: of a state."""

    width: int
    history_length: int
    layers: int
    hidden: int

    def shapes(self) -> Shapes:
        """Of all its numbers."""
        for name in ("input_norm", "final_norm"):
            yield f"encoder.{name}.weight", (self.width,)
            yield f"encoder.{name}.bias", (self.width,)
        gates = GATES * self.hidden
        for layer in range(self.layers):
            inputs = self.width if layer == 0 else self.hidden
            for name, size in (("ih", inputs), ("hh", self.hidden)):
                yield f"encoder.gru.weight_{name}_l{layer}", (gates, size)
                yield f"encoder.gru.bias_{name}_l{layer}", (gates,)
        yield "encoder.project.weight", (self.width, self.hidden)
        yield "encoder.project.bias", (self.width,)


def encoder_sizes(arrays: Mapping[str, AnyArray], *, width: int) -> SelfAttentionSizes | RecurrentSizes:
    """Of a stored encoder for vectors of a width, by names such as encoder.layers.0.recency.

    InputError where the arrays that have the sizes are missing, or the sizes impossible.
    """
    if "encoder.gru.weight_hh_l0" in arrays:
        hidden = checked_shape(arrays, "encoder.gru.weight_hh_l0", (None, None))[1]
        checked_shape(arrays, "encoder.length", ())
        layers = sum(name.startswith("encoder.gru.weight_hh_l") for name in arrays)
        return RecurrentSizes(width, _at_least_one(arrays["encoder.length"]), layers, hidden)
    heads, history_length = checked_shape(arrays, "encoder.layers.0.recency", (None, None))
    if width % heads:
        raise InputError(
            f"Expected a number of heads that divides the tower's width of {width}, got {heads}: the rows of "
            "encoder.layers.0.recency. Save or download the model again."
        )
    layers = len({name.split(".")[2] for name in arrays if name.startswith("encoder.layers.")})
    return SelfAttentionSizes(width, history_length, layers, heads)


def _at_least_one(history_length: AnyArray) -> int:
    if history_length.dtype.kind != "i" or int(history_length) < 1:
        raise InputError(
            f"Expected encoder.length as a whole number of items, at least 1, got {history_length}. Save or download "
            "the model again."
        )
    return int(history_length)
