"""The tower in the kernels: a sequence encoder over the history, and inner products with the nodes' vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from beamtree.data.requests import Histories
from beamtree.errors import InputError
from beamtree.native import _kernels
from beamtree.native.network import checked_shape, plain
from beamtree.native.tree import kernel_tree
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array


@dataclass(frozen=True, eq=False)
class TowerArrays:
    """A tower over a tree. Its node table is read where it lies, a mapped file included; the encoder is a copy.

    Pack again after the encoder's weights have changed.
    """

    kernel: _kernels.Tower
    width: int

    @classmethod
    def pack(cls, arrays: Mapping[str, Any], tree: ItemTree) -> TowerArrays:
        """From the arrays of a tower by name: node_table, weight, encoder.layers.0.recency, ...

        NumPy arrays or torch tensors on the CPU, float32; all sizes are those of the arrays. Names that are not a
        tower's are left aside. InputError where an array is missing or of another shape or type.
        """
        named = {name: np.asarray(plain(array)) for name, array in arrays.items()}
        node_table = _checked(named, "node_table", (tree.num_nodes, None))
        width = node_table.shape[1]
        if not node_table.flags.c_contiguous:
            raise InputError("Expected the tower's node_table row by row in memory, as it is saved. Copy it so.")
        heads, history_length = _checked(named, "encoder.layers.0.recency", (None, None)).shape
        if width % heads:
            raise InputError(
                f"Expected a number of heads that divides the tower's width of {width}, got {heads}: the rows of "
                "encoder.layers.0.recency. Save or download the model again."
            )
        layers = len({name.split(".")[2] for name in named if name.startswith("encoder.layers.")})
        weights = {
            name: np.ascontiguousarray(_checked(named, name, shape))
            for name, shape in _encoder_shapes(width, recency=(heads, history_length), layers=layers)
        }
        kernel = _kernels.Tower(
            kernel_tree(tree),
            weights=weights,
            node_table=node_table,
            weight=float(_checked(named, "weight", ())),
            history_length=history_length,
            heads=heads,
            layers=layers,
        )
        return cls(kernel, width)

    def encode(self, histories: Histories) -> Float32Array:
        """The vector of each history (n, width), not multiplied by the tower's weight; spread over the threads.

        ValueError where a history has an item that the tree lacks.
        """
        return self.kernel.encode(
            items=np.ascontiguousarray(histories.items),
            starts=np.ascontiguousarray(histories.starts),
            ends=np.ascontiguousarray(histories.ends),
        )


def _encoder_shapes(width: int, *, recency: tuple[int, int], layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What each array of an encoder is called, and its shape."""
    for layer in range(layers):
        yield f"encoder.layers.{layer}.recency", recency
        for name in ("attention_norm", "network_norm"):
            yield f"encoder.layers.{layer}.{name}.weight", (width,)
            yield f"encoder.layers.{layer}.{name}.bias", (width,)
        for name, outputs, inputs in (
            ("queries_keys_values", 3 * width, width),
            ("merge", width, width),
            ("widen", 4 * width, width),
            ("narrow", width, 4 * width),
        ):
            yield f"encoder.layers.{layer}.{name}.weight", (outputs, inputs)
            yield f"encoder.layers.{layer}.{name}.bias", (outputs,)
    yield "encoder.final_norm.weight", (width,)
    yield "encoder.final_norm.bias", (width,)


def _checked(named: Mapping[str, AnyArray], name: str, shape: tuple[int | None, ...]) -> Float32Array:
    """One of the arrays; None stands for any size of at least 1."""
    checked_shape(named, name, shape)
    if named[name].dtype != np.float32:
        raise InputError(
            f"Expected a tower's {name} as float32, got {named[name].dtype}. Save or download the model again."
        )
    return named[name]
