"""The attention network with its tables: what search, training and relearning in the kernels take alike."""

from __future__ import annotations

from dataclasses import dataclass, field

from beamtree.native import _kernels
from beamtree.native.network import Array, Network, plain


@dataclass(frozen=True, eq=False)
class AttentionArrays:
    """The attention network and its tables, read where they lie, a mapped file included.

    node_table: (nodes, size), float32 or float16. item_table: (items, size), or None where history items are read as
    their ancestors from the node table. A step of training makes a new one: only shapes are looked at. ValueError where
    a table has rows of another size than the network's.
    """

    network: Network
    node_table: Array
    item_table: Array | None = None
    kernel: _kernels.AnyAttention = field(init=False, repr=False)

    def __post_init__(self) -> None:
        tables = plain(self.node_table), plain(self.item_table)
        kernel: _kernels.AnyAttention
        if isinstance(self.network.kernel, _kernels.NetworkFloat32):
            kernel = _kernels.AttentionFloat32(self.network.kernel, *tables)
        else:
            kernel = _kernels.AttentionFloat64(self.network.kernel, *tables)
        object.__setattr__(self, "kernel", kernel)

    @property
    def float32_kernel(self) -> _kernels.AttentionFloat32:
        """What search and training from histories take; TypeError for a network of another precision."""
        if not isinstance(self.kernel, _kernels.AttentionFloat32):
            raise TypeError(f"Expected a network of float32 weights, got {self.network.dtype}. Pack float32 arrays.")
        return self.kernel
