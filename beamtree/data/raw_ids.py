"""Raw ids to dense ids and back, quick for the handful of ids of one request."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl

from beamtree.data.vocabulary import Id, Vocabulary
from beamtree.errors import IdTypeError, InputError
from beamtree.types import NOTHING, Int32Array, Int64Array, IntArray

Ids = Iterable[Id]
"""Raw ids as given by callers: a list, a NumPy array, or a column of Polars, pandas or Arrow."""

IdList = Sequence[Any] | Int64Array
"""Raw ids as they are looked up: a list, or an array where they are integers anyway."""

_INTEGER = re.compile(r"(-?[0-9]{1,19})(?:\.0+)?")
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_TO_LIST = ("to_pylist", "to_list", "tolist")
"""How Arrow, Polars and pandas, and NumPy turn a column into a list."""


class RawIds:
    """The ids of a vocabulary: integers in a sorted array, texts in a dictionary. name: how messages call them."""

    def __init__(self, vocabulary: Vocabulary, *, name: str = "item ids of this model") -> None:
        self._name = name
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
        """What the ids are."""
        return "integers" if self.holds_integers else "texts"

    def first_of_wrong_type(self, ids: Sequence[Any]) -> Any:
        """The first id that is a text where ids are integers, or the reverse; None where all are right."""
        wanted = int if self.holds_integers else str
        if set(map(type, ids)) <= {wanted}:
            return None
        return next((raw for raw in ids if type(raw) is not wanted), None)

    def check(self, ids: IdList, *, what: str) -> IdList:
        """The ids, NumPy's scalars as Python's own; IdTypeError where one is of the other kind, or missing."""
        if isinstance(ids, np.ndarray):
            if self.holds_integers or not len(ids):
                return ids
            raise self._wrong(ids[0].item(), what=what)
        wanted = int if self.holds_integers else str
        if set(map(type, ids)) <= {wanted}:
            return ids
        plain = [raw.item() if isinstance(raw, np.generic) else raw for raw in ids]
        for raw in plain:
            if type(raw) is not wanted:
                raise self._wrong(raw, what=what)
        return plain

    def encode(self, ids: IdList) -> Int32Array:
        """Dense ids (n,), -1 where unknown. All ids have the right type."""
        if not self.holds_integers:
            find = self._dense_of_text.get
            return np.fromiter((find(raw, NOTHING) for raw in ids), dtype=np.int32, count=len(ids))
        try:
            wanted = np.asarray(ids, dtype=np.int64)
        except OverflowError:
            return np.array(
                [int(self.encode([raw])[0]) if _LOWEST <= raw <= _HIGHEST else NOTHING for raw in ids], dtype=np.int32
            )
        place = self._sorted.searchsorted(wanted)
        found = self._sorted.take(place, mode="clip") == wanted
        return np.where(found, self._order.take(place, mode="clip"), np.int32(NOTHING))

    def encode_respelled(self, ids: IdList) -> Int32Array:
        """Dense ids of the known ones, where a log may spell integers as texts or the reverse."""
        is_spelt_alike = self.holds_integers if isinstance(ids, np.ndarray) else self.first_of_wrong_type(ids) is None
        if not is_spelt_alike:
            parsed = (self.parse(str(raw)) for raw in ids)
            ids = [raw for raw in parsed if raw is not None]
        dense = self.encode(ids)
        return dense[dense >= 0]

    def decode(self, dense: IntArray) -> list[Id]:
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
        written = _INTEGER.fullmatch(text)
        if written is None:
            return None
        number = int(written[1])
        return number if _LOWEST <= number <= _HIGHEST else None

    def _wrong(self, raw: Any, *, what: str) -> IdTypeError:
        remedy = "drop missing ids first" if _is_missing(raw) else f"pass {self.kind}"
        return IdTypeError(f"{what}: the {self._name} are {self.kind}, got {_shortened(raw)}: {remedy}.", raw)


def id_list(ids: Any, *, what: str) -> IdList:
    """Ids from any column or iterable; InputError for a bare text or number, which is not a list of ids."""
    if isinstance(ids, list):
        return ids
    if isinstance(ids, str | bytes | int | np.generic):
        shown = ids.item() if isinstance(ids, np.generic) else ids
        raise InputError(
            f"{what}: expected a list of ids, got {_shortened(shown)}. Give a list: [{_shortened(shown)}]."
        )
    if isinstance(ids, pl.Series) and ids.dtype.is_integer() and ids.dtype != pl.UInt64 and not ids.null_count():
        return ids.cast(pl.Int64).to_numpy()
    if isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind in "iu" and ids.dtype != np.uint64:
        return ids.astype(np.int64, copy=False)
    return plain_list(ids, what=what)


def unknown_ids(ids: IdList, dense: Int32Array) -> list[Id]:
    """Those ids (n,) whose dense ids (n,) are -1."""
    listed = ids.tolist() if isinstance(ids, np.ndarray) else ids
    return [listed[index] for index in np.flatnonzero(dense < 0).tolist()]


def plain_list(values: Any, *, what: str) -> list[Any]:
    """The elements of a column or an iterable as a list; InputError for what has no elements."""
    columns = getattr(values, "columns", None)
    if columns is not None:
        raise InputError(f"{what}: expected a list, got a table. Give one of its columns.")
    for name in _TO_LIST:
        convert = getattr(values, name, None)
        if convert is not None:
            return list(convert())
    try:
        return list(values)
    except TypeError:
        raise InputError(f"{what}: expected a list, got {_shortened(values)}. Give a list.") from None


def _is_missing(raw: Any) -> bool:
    """None, NaN, and what pandas marks missing values with."""
    return raw is None or type(raw).__name__ in ("NAType", "NaTType") or (isinstance(raw, float) and raw != raw)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
