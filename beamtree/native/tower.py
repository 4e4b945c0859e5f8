"""The tower in the kernels: a sequence encoder over the history, and inner products with the nodes' vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from beamtree.data.requests import Histories
from beamtree.errors import InputError
from beamtree.native import _kernels
from beamtree.native.encoder_arrays import RecurrentSizes, encoder_sizes
from beamtree.native.network import plain
from beamtree.native.offset_arrays import OffsetArrays
from beamtree.native.shapes import checked_shape
from beamtree.native.tree import kernel_tree
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array


@dataclass(frozen=True, eq=False)
class TowerArrays:
    """A tower over a tree. Its node table is read where it lies, a mapped file included; the encoder is a copy.

    Pack again after the encoder's weights have changed. offsets: what requests add to their encoded histories, None
    where the tower reads nothing beside a history.
    """

    kernel: _kernels.Tower
    offsets: OffsetArrays | None = None

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
        encoder, weight = _pack_encoder(named, width=width), float(_checked(named, "weight", ()))
        kernel = _kernels.Tower(kernel_tree(tree), encoder, node_table=node_table, weight=weight)
        return cls(kernel, OffsetArrays.of(named, width=width))

    def encode(self, histories: Histories) -> Float32Array:
        """The vector of each history (n, width), not multiplied by the tower's weight; spread over the threads.

        ValueError where a history has an item that the tree lacks.
        """
        return self.kernel.encode(
            items=np.ascontiguousarray(histories.items),
            starts=np.ascontiguousarray(histories.starts),
            ends=np.ascontiguousarray(histories.ends),
        )


def _pack_encoder(named: Mapping[str, AnyArray], *, width: int) -> _kernels.Encoder:
    sizes = encoder_sizes(named, width=width)
    weights = {name: np.ascontiguousarray(_checked(named, name, shape)) for name, shape in sizes.shapes()}
    if isinstance(sizes, RecurrentSizes):
        return _kernels.recurrent_encoder(
            weights, width=width, hidden=sizes.hidden, layers=sizes.layers, history_length=sizes.history_length
        )
    return _kernels.self_attention_encoder(
        weights, width=width, heads=sizes.heads, layers=sizes.layers, history_length=sizes.history_length
    )


def _checked(named: Mapping[str, AnyArray], name: str, shape: tuple[int | None, ...]) -> Float32Array:
    """One of the arrays; None stands for any size of at least 1."""
    checked_shape(named, name, shape)
    if named[name].dtype != np.float32:
        raise InputError(
            f"Expected a tower's {name} as float32, got {named[name].dtype}. Save or download the model again."
        )
    return named[name]
