"""Raw ids to dense ids and back, quick for the handful of ids of one request."""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from beamtree.data.vocabulary import Id, Vocabulary

Int32Array = npt.NDArray[np.int32]

_INTEGER = re.compile(r"-?[0-9]{1,19}")


class RawIds:
    """The ids of a vocabulary: integers in a sorted array, texts in a dictionary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.holds_integers = vocabulary.holds_integers
        if self.holds_integers:
            self._integers = vocabulary.ids.to_numpy()
            self._order = np.argsort(self._integers, kind="stable").astype(np.int32)
            self._sorted = self._integers[self._order]
        else:
            self._texts: list[str] = vocabulary.ids.to_list()
            self._dense_of_text = {text: dense for dense, text in enumerate(self._texts)}

    @property
    def kind(self) -> str:
        """How messages call the ids."""
        return "integers" if self.holds_integers else "texts"

    def first_of_wrong_type(self, ids: Sequence[Id]) -> Id | None:
        """The first id that is a text where ids are integers, or the reverse."""
        wanted = int if self.holds_integers else str
        if set(map(type, ids)) <= {wanted}:
            return None
        return next((raw for raw in ids if type(raw) is not wanted), None)

    def encode(self, ids: Sequence[Id]) -> Int32Array:
        """Dense ids (n,), -1 where unknown. All ids have the right type."""
        if not self.holds_integers:
            return np.fromiter((self._dense_of_text.get(str(raw), -1) for raw in ids), dtype=np.int32, count=len(ids))
        wanted = np.array(ids, dtype=np.int64)
        place = self._sorted.searchsorted(wanted)
        found = self._sorted.take(place, mode="clip") == wanted
        return np.where(found, self._order.take(place, mode="clip"), np.int32(-1))

    def decode(self, dense: npt.NDArray[np.integer]) -> list[Id]:
        """Raw ids of dense ids, none of which is -1."""
        if self.holds_integers:
            found: list[Id] = self._integers[dense].tolist()
            return found
        return [self._texts[index] for index in dense.tolist()]

    def find(self, texts: Sequence[str]) -> tuple[Int32Array, list[str]]:
        """Dense ids of texts from an address, in their order, and those texts that name nothing known."""
        parsed = [self.parse(text) for text in texts]
        dense = self.encode([raw for raw in parsed if raw is not None])
        places = iter(dense.tolist())
        is_known = [raw is not None and next(places) >= 0 for raw in parsed]
        return dense[dense >= 0], [text for text, known in zip(texts, is_known, strict=True) if not known]

    def parse(self, text: str) -> Id | None:
        """The id that a text in an address means; None where it cannot be one."""
        if not self.holds_integers:
            return text
        if not _INTEGER.fullmatch(text):
            return None
        number = int(text)
        return number if -(2**63) <= number < 2**63 else None
