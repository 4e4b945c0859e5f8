"""Search over a trained model: dense histories in, dense items and scores out. No torch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree import native
from beamtree.config import ModelSettings
from beamtree.errors import InputError
from beamtree.retrieval.found import BoolArray, Found, Int32Array, Ragged
from beamtree.retrieval.numpy_search import NumpySearch
from beamtree.tree.item_tree import ItemTree


class Engine:
    """A model's arrays, its tree, and the search over both: in the kernels where they were compiled, else in NumPy."""

    def __init__(self, weights: Mapping[str, npt.NDArray[Any]], tree: ItemTree, *, settings: ModelSettings) -> None:
        if ("item_table" in weights) != (settings.history_table == "separate"):
            found = "has" if "item_table" in weights else "lacks"
            raise InputError(
                f"The model {found} a table of its own for histories (item_table), but its settings say "
                f"model.history_table = '{settings.history_table}'. Use the settings that it was learned with."
            )
        self.tree = tree
        self.history_length = settings.history_length
        if native.is_available():
            from beamtree.retrieval.native_search import NativeSearch

            self._search: NativeSearch | NumpySearch = NativeSearch(weights, tree, settings=settings)
        else:
            self._search = NumpySearch(weights, tree, settings=settings)

    def search(
        self,
        histories: Int32Array,
        *,
        k: int,
        beam_width: int,
        allowed_items: BoolArray | None = None,
        excluded_items: Ragged | None = None,
    ) -> Found:
        """Beam search for each history (requests, history_length), oldest first, -1 in front.

        allowed_items: (items,), what may be returned at all; excluded_items: (flat, offsets), what each request must
        not get. The beam is at least k wide, and grows with what a request excludes, at most to twice its width.
        """
        self._check(histories, k=k, allowed_items=allowed_items, excluded_items=excluded_items)
        if beam_width < 1:
            raise InputError(f"Expected a beam width of at least 1, got {beam_width}.")
        return self._search.search(
            histories,
            k=k,
            beam_width=max(beam_width, k),
            allowed_items=allowed_items,
            excluded_items=excluded_items,
        )

    def scan(
        self,
        histories: Int32Array,
        *,
        k: int,
        allowed_items: BoolArray | None = None,
        excluded_items: Ragged | None = None,
    ) -> Found:
        """The exact top k for each history: every eligible leaf is scored."""
        self._check(histories, k=k, allowed_items=allowed_items, excluded_items=excluded_items)
        return self._search.scan(histories, k=k, allowed_items=allowed_items, excluded_items=excluded_items)

    def _check(
        self, histories: Int32Array, *, k: int, allowed_items: BoolArray | None, excluded_items: Ragged | None
    ) -> None:
        if histories.ndim != 2 or histories.shape[1] != self.history_length:
            raise InputError(
                f"Expected histories of shape (requests, {self.history_length}), got {histories.shape}. "
                "Cut or pad them in front with -1."
            )
        if k < 1:
            raise InputError(f"Expected k of at least 1, got {k}.")
        self._check_items(histories, "histories")
        if excluded_items is not None:
            self._check_items(excluded_items[0], "excluded items")
            if len(excluded_items[1]) != len(histories) + 1:
                raise InputError(
                    f"Expected a list of excluded items for each of {len(histories)} histories, "
                    f"got {len(excluded_items[1]) - 1}."
                )
        if allowed_items is not None and allowed_items.shape != (self.tree.num_items,):
            raise InputError(
                f"Expected one flag for each of {self.tree.num_items} items, got shape {allowed_items.shape}."
            )

    def _check_items(self, items: npt.NDArray[np.integer], name: str) -> None:
        if items.size and not -1 <= items.min() <= items.max() < self.tree.num_items:
            raise InputError(
                f"Expected {name} from -1 to {self.tree.num_items - 1}, got {items.min()} to {items.max()}. "
                "Encode raw ids with the vocabulary of this model."
            )
