"""Beam search and exact scan in the compiled kernels: the same answers as `numpy_search`, at the machine's speed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.config import ModelSettings
from beamtree.native.network import Network
from beamtree.native.search import Model
from beamtree.retrieval.found import BoolArray, Found, Int32Array, Ragged
from beamtree.tree.item_tree import ItemTree


class NativeSearch:
    """The kernels' searches over a model's arrays, which stay where they lie, in a mapped file for example."""

    def __init__(self, weights: Mapping[str, npt.NDArray[Any]], tree: ItemTree, *, settings: ModelSettings) -> None:
        network = Network.pack(weights, windows=settings.windows, normalisation=settings.normalisation)
        self._model = Model(network, tree, node_table=weights["node_table"], item_table=weights.get("item_table"))

    def search(
        self,
        histories: Int32Array,
        *,
        k: int,
        beam_width: int,
        allowed_items: BoolArray | None,
        excluded_items: Ragged | None,
    ) -> Found:
        """Beam search; a request's beam grows by what it excludes, at most to twice its width."""
        items, scores = self._model.beam_search(
            np.ascontiguousarray(histories),
            k=k,
            beam_widths=np.full(len(histories), beam_width, dtype=np.int64),
            allowed=None if allowed_items is None else self._model.allow(allowed_items),
            excluded_items=excluded_items,
        )
        return Found(items=items, scores=scores)

    def scan(
        self, histories: Int32Array, *, k: int, allowed_items: BoolArray | None, excluded_items: Ragged | None
    ) -> Found:
        """The exact top k: every eligible leaf is scored."""
        items, scores = self._model.exact_scan(
            np.ascontiguousarray(histories),
            k=k,
            allowed=None if allowed_items is None else self._model.allow(allowed_items),
            excluded_items=excluded_items,
        )
        return Found(items=items, scores=scores)
