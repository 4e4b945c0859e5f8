"""The scorer of the compiled kernels, which also run the search."""

from collections.abc import Mapping
from copy import copy
from functools import partial

import numpy as np

from beamtree.config import Config, ModelSettings
from beamtree.data.requests import Requests
from beamtree.errors import InputError
from beamtree.model.memory import Memory
from beamtree.native.attention import AttentionArrays
from beamtree.native.network import Network
from beamtree.native.score import KernelScore, LinkArrays, MemoryArrays
from beamtree.native.shapes import checked_shape
from beamtree.native.tower import TowerArrays
from beamtree.retrieval.result import SearchResult
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array, Int64Array


class NativeScorer:
    """The kernels' score over the arrays of a model, without copies."""

    def __init__(
        self,
        tree: ItemTree,
        *,
        attention: Mapping[str, AnyArray] | None,
        memory: Memory | None,
        tower: Mapping[str, AnyArray] | None,
        config: Config,
    ) -> None:
        """attention, tower: their arrays by name, tables among them; any of the parts may be absent, but not all."""
        settings = config.model
        self._score_with = partial(
            KernelScore,
            tree,
            attention=None if attention is None else _attention_arrays(attention, tree, settings=settings),
            tower=None if tower is None else TowerArrays.pack(tower, tree),
            attention_from=settings.attention_range(tree.height).start,
        )
        self._score = self._score_with(memory=None if memory is None else _memory_arrays(memory, tree))

    def with_memory(self, memory: Memory) -> "NativeScorer":
        """The same score with another memory; everything else is shared."""
        scorer = copy(self)
        scorer._score = self._score_with(memory=_memory_arrays(memory, self._score.tree))
        return scorer

    def prepare(self, requests: Requests) -> "NativeScores":
        """Scores of any node for these requests."""
        return NativeScores(self._score, requests)

    def search(self, requests: Requests, *, k: int, beam_width: int) -> SearchResult:
        """Beam search; a request's beam grows by what it excludes, at most to twice its width."""
        widths = np.full(len(requests), beam_width, dtype=np.int64)
        return SearchResult(*self._score.beam_search(self._score.requests(requests), k=k, beam_widths=widths))

    def scan(self, requests: Requests, *, k: int) -> SearchResult:
        """The exact top k: every eligible leaf is scored."""
        return SearchResult(*self._score.exact_scan(self._score.requests(requests), k=k))


class NativeScores:
    """Scores for the requests that they were prepared for."""

    def __init__(self, score: KernelScore, requests: Requests) -> None:
        self._score = score
        self._requests = score.requests(requests)

    def scores(self, request: int, level: int, nodes: Int64Array) -> Float32Array:
        """Scores (n,) of nodes (n,) of a level, for one of the requests."""
        return self._score.scores(self._requests, request=request, level=level, nodes=nodes)


def _attention_arrays(arrays: Mapping[str, AnyArray], tree: ItemTree, *, settings: ModelSettings) -> AttentionArrays:
    if ("item_table" in arrays) != (settings.network.history_table == "separate"):
        found = "has" if "item_table" in arrays else "lacks"
        raise InputError(
            f"The model {found} a table of its own for histories (item_table), but its settings say "
            f"model.network.history_table = '{settings.network.history_table}'. Use the settings that it was learned "
            "with."
        )
    network = Network.pack(arrays, windows=settings.windows, normalisation=settings.network.normalisation)
    if network.size != settings.embedding_dim:
        raise InputError(
            f"Expected vectors of model.embedding_dim = {settings.embedding_dim} numbers, got a network for "
            f"{network.size}. Use the settings that it was learned with."
        )
    checked_shape(arrays, "node_table", (tree.num_nodes, network.size))
    return AttentionArrays(network, arrays["node_table"], arrays.get("item_table"))


def _memory_arrays(memory: Memory, tree: ItemTree) -> MemoryArrays:
    weights = memory.weights
    return MemoryArrays(
        links=tuple(
            LinkArrays(
                kind.links.offsets,
                kind.links.items,
                kind.links.strengths,
                kind.weight,
                kind.fade,
                kind.depth,
                kind.distinct,
            )
            for kind in memory.kinds
        ),
        repeat_weight=weights.repeats,
        repeat_fade=weights.repeat_fade,
        returns=memory.returns,
        popularity_weight=1.0 if memory.has_demand else 0.0,
        most_popular=memory.most_demanded,
        popularity=memory.demand,
        gates=memory.gates or (1.0,) * (tree.height + 1),
    )
