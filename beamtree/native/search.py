"""Beam search and exact scan of a whole model: dense histories in, dense items and scores out."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from beamtree.native import _kernels
from beamtree.native.network import Array, Network, float32_kernel, plain
from beamtree.tree.item_tree import ItemTree

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
Float32Array = NDArray[np.float32]
Ragged = tuple[Int32Array, Int64Array]


@dataclass(frozen=True, eq=False)
class Model:
    """Weights, tree and tables, ready for the kernels. The tables are read where they lie, a mapped file included.

    node_table: (nodes, size), float32 or float16. item_table: (items, size), or None where history items are read as
    their ancestors from the node table.
    """

    network: Network
    tree: ItemTree
    node_table: Array
    item_table: Array | None = None
    kernel_tree: _kernels.Tree = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel_tree", _kernel_tree(self.tree))

    def allow(self, allowed_items: NDArray[np.bool_]) -> _kernels.LeafSet:
        """What any request may return, (items,), as bits over the leaves; can be kept and used for many searches."""
        return _kernels.allow(self.kernel_tree, allowed_items)

    def beam_search(
        self,
        histories: Int32Array,
        *,
        k: int,
        beam_widths: Int64Array,
        widen: bool = True,
        allowed: _kernels.LeafSet | None = None,
        excluded_items: Ragged | None = None,
    ) -> tuple[Int32Array, Float32Array]:
        """Items and scores (requests, k), best first, -1 and -inf where fewer were eligible.

        histories: (requests, positions), -1 in front; beam_widths: (requests,). With `widen`, a request's beam grows by
        the number of leaves it excludes, at most to twice its width. excluded_items: (flat, offsets).
        Few requests share the threads among them, one by one; many are spread over the threads.
        """
        return self._search(histories, k, beam_widths, widen, allowed, excluded_items)

    def exact_scan(
        self,
        histories: Int32Array,
        *,
        k: int,
        allowed: _kernels.LeafSet | None = None,
        excluded_items: Ragged | None = None,
    ) -> tuple[Int32Array, Float32Array]:
        """The same with every eligible leaf scored."""
        return self._search(histories, k, None, False, allowed, excluded_items)

    def _search(
        self,
        histories: Int32Array,
        k: int,
        beam_widths: Int64Array | None,
        widen: bool,
        allowed: _kernels.LeafSet | None,
        excluded_items: Ragged | None,
    ) -> tuple[Int32Array, Float32Array]:
        items, offsets = excluded_items if excluded_items is not None else (None, None)
        return _kernels.search(
            float32_kernel(self.network),
            self.kernel_tree,
            plain(self.node_table),
            plain(self.item_table),
            histories,
            beam_widths,
            k,
            widen,
            allowed,
            items,
            offsets,
        )


_kernel_trees: WeakKeyDictionary[ItemTree, _kernels.Tree] = WeakKeyDictionary()


def _kernel_tree(tree: ItemTree) -> _kernels.Tree:
    """The kernels' view of a tree, made once: every step of training makes a new model of the same tree."""
    if tree not in _kernel_trees:
        _kernel_trees[tree] = _kernels.Tree(tree.branching, tree.item_at_leaf, tree.leaf_of_item)
    return _kernel_trees[tree]
