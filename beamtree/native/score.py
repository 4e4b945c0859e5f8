"""A whole score in the kernels, and the searches over it: dense histories in, dense items and scores out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from beamtree.data.requests import Requests
from beamtree.native import _kernels
from beamtree.native.attention import AttentionArrays
from beamtree.native.tower import TowerArrays
from beamtree.native.tree import kernel_tree
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array, Int32Array, Int64Array


@dataclass(frozen=True)
class LinkArrays:
    """Lists of items (offsets (items + 1,), items, float16 strengths), their weight, and the reading of a history."""

    offsets: Int64Array
    items: Int32Array
    strengths: AnyArray
    weight: float
    fade: float
    depth: int
    distinct: bool


@dataclass(frozen=True)
class MemoryArrays:
    """Counted evidence. returns, popularity: float32 (items,); most_popular: (items,), in order; gates: one a level."""

    links: tuple[LinkArrays, ...]
    repeat_weight: float
    repeat_fade: float
    returns: Float32Array
    popularity_weight: float
    most_popular: Int32Array
    popularity: Float32Array
    gates: tuple[float, ...]


class KernelScore:
    """Parts of a score over a tree, ready to be searched; at least one of them is there.

    attention_from: the levels above it do without the attention network. ValueError where a tower was packed for
    another tree.
    """

    def __init__(
        self,
        tree: ItemTree,
        *,
        attention: AttentionArrays | None = None,
        memory: MemoryArrays | None = None,
        tower: TowerArrays | None = None,
        attention_from: int = 0,
    ) -> None:
        self.tree = tree
        self._kernel_tree = kernel_tree(tree)
        self._tower_offsets = None if tower is None else tower.offsets
        self._layer_offsets = None if attention is None else attention.network.offsets
        self._score = _kernels.Score(
            self._kernel_tree,
            attention=None if attention is None else attention.float32_kernel,
            memory=None if memory is None else _kernel_memory(memory),
            tower=None if tower is None else tower.kernel,
            attention_from=attention_from,
        )

    def requests(self, requests: Requests) -> _kernels.Requests:
        """Requests as the kernels read them; can be used for many calls."""
        histories, excluded = requests.histories, requests.excluded
        return _kernels.Requests(
            np.ascontiguousarray(histories.items),
            np.ascontiguousarray(histories.starts),
            np.ascontiguousarray(histories.ends),
            allowed=None if requests.allowed is None else _kernels.allow(self._kernel_tree, requests.allowed),
            excluded_items=None if excluded is None else excluded.items,
            excluded_offsets=None if excluded is None else excluded.offsets,
            tower_offsets=None if self._tower_offsets is None else self._tower_offsets.offsets(requests),
            layer_offsets=None if self._layer_offsets is None else self._layer_offsets.offsets(requests),
        )

    def beam_search(
        self, requests: _kernels.Requests, *, k: int, beam_widths: Int64Array
    ) -> tuple[Int32Array, Float32Array]:
        """Items and scores (requests, k), best first, -1 and -inf where fewer were eligible.

        beam_widths: (requests,). A request's beam grows by the number of leaves it excludes, at most to
        twice its width. Few requests share the threads among them, one by one; many are spread over the threads.
        """
        return _kernels.search(self._score, requests, beam_widths, k, True)

    def exact_scan(self, requests: _kernels.Requests, *, k: int) -> tuple[Int32Array, Float32Array]:
        """The same with every eligible leaf scored."""
        return _kernels.search(self._score, requests, None, k, False)

    def scores(self, requests: _kernels.Requests, *, request: int, level: int, nodes: Int64Array) -> Float32Array:
        """Scores (n,) of nodes (n,) of a level for one of the requests."""
        return _kernels.score_nodes(self._score, requests, request, level, np.ascontiguousarray(nodes))


def _kernel_memory(memory: MemoryArrays) -> _kernels.Memory:
    return _kernels.Memory(
        links=[
            _kernels.Links(
                np.ascontiguousarray(kind.offsets),
                np.ascontiguousarray(kind.items),
                np.ascontiguousarray(kind.strengths),
                kind.weight,
                kind.fade,
                kind.depth,
                kind.distinct,
            )
            for kind in memory.links
        ],
        repeat_weight=memory.repeat_weight,
        repeat_fade=memory.repeat_fade,
        returns=np.ascontiguousarray(memory.returns),
        popularity_weight=memory.popularity_weight,
        most_popular=memory.most_popular,
        popularity=np.ascontiguousarray(memory.popularity),
        gates=memory.gates,
    )
