"""Raw ids and dense ids: the only place where one becomes the other.

A raw id is the id in the log (an integer or a text). A dense id is a row number, 0 .. n-1, int32 in arrays.
-1 is the dense id of everything outside the vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from beamtree.errors import DataError, UnknownIdsError
from beamtree.types import NOTHING, AnyArray, Int32Array, IntArray

Id = int | str


@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary:
    """The raw ids in dense order: dense id d is `ids[d]`.

    ids: Series of Int64 or String (narrower integers are widened), unique and without nulls, else DataError.
    """

    ids: pl.Series

    def __post_init__(self) -> None:
        ids = self.ids
        if ids.dtype.is_integer():
            ids = ids.cast(pl.Int64)
        elif ids.dtype != pl.String:
            raise DataError(f"A vocabulary holds integers or texts, got {ids.dtype}: cast the ids to Int64 or String.")
        if ids.null_count():
            raise DataError(f"A vocabulary holds no nulls, got {ids.null_count()}: drop them first.")
        if ids.n_unique() != len(ids):
            repeated = ids.filter(ids.is_duplicated()).item(0)
            raise DataError(f"A vocabulary holds each id once, but {repeated!r} occurs again: drop the repeats first.")
        object.__setattr__(self, "ids", ids.rename("id"))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        kind = "integer" if self.holds_integers else "text"
        return f"Vocabulary({len(self):,} {kind} ids)"

    @property
    def holds_integers(self) -> bool:
        """Whether the raw ids are integers; they are texts otherwise."""
        return self.ids.dtype == pl.Int64

    def encode(self, values: Sequence[Id | None] | pl.Series | AnyArray) -> Int32Array:
        """Dense ids of raw ids, shape (n,); -1 where the id is unknown or null.

        Values of the other kind (texts for an integer vocabulary, or the reverse) raise DataError: they would
        silently match nothing.
        """
        raw = self._as_raw(values)
        if len(raw) * 4 < len(self):
            return self._encode_few(raw)
        table = pl.DataFrame({"id": self.ids}).with_row_index("dense")
        joined = pl.DataFrame({"id": raw}).join(table, on="id", how="left", maintain_order="left")
        return joined["dense"].cast(pl.Int32).fill_null(-1).to_numpy()

    def decode(self, dense: IntArray | Sequence[int]) -> pl.Series:
        """Raw ids of dense ids, in the type they came in; null where the dense id is -1.

        A dense id outside -1 .. n-1 raises DataError.
        """
        positions = np.asarray(dense, dtype=np.int64).reshape(-1)
        outside = (positions < -1) | (positions >= len(self))
        if outside.any():
            raise DataError(f"Dense ids go from 0 to {len(self) - 1}, got {positions[outside][0]}.")
        index = pl.Series(positions)
        return self.ids.gather(index.set(index == NOTHING, None))

    def parse(self, text: str) -> Id:
        """The raw id that a text from the command line means: an integer where the vocabulary holds integers."""
        if not self.holds_integers:
            return text
        try:
            return int(text)
        except ValueError:
            raise UnknownIdsError(f"The ids of this log are integers, got {text!r}: give an integer.") from None

    def _as_raw(self, values: Sequence[Id | None] | pl.Series | AnyArray) -> pl.Series:
        """The values as a Series of this vocabulary's own type."""
        try:
            raw = values if isinstance(values, pl.Series) else pl.Series("id", values)
        except (TypeError, pl.exceptions.PolarsError) as problem:
            raise DataError(f"Ids are all integers or all texts, got a mixture: {problem}") from problem
        if raw.dtype in (pl.Categorical, pl.Enum):
            raw = raw.cast(pl.String)
        fits = raw.dtype.is_integer() if self.holds_integers else raw.dtype == pl.String
        if not fits and raw.null_count() < len(raw):
            kind, example = ("integers" if self.holds_integers else "texts"), raw.drop_nulls().item(0)
            raise DataError(f"The ids of this vocabulary are {kind}, got {example!r} ({raw.dtype}): pass {kind}.")
        return raw.cast(self.ids.dtype, strict=False)

    @cached_property
    def _sorted(self) -> tuple[pl.Series, Int32Array]:
        """The ids in ascending order, and the dense id of each."""
        order = self.ids.arg_sort()
        return self.ids.gather(order), order.cast(pl.Int32).to_numpy()

    def _encode_few(self, raw: pl.Series) -> Int32Array:
        """Binary search: cheap for a handful of ids, where a join would hash the whole vocabulary."""
        in_order, dense = self._sorted
        known = raw.is_not_null()
        wanted = raw.filter(known)
        place = in_order.search_sorted(wanted, side="left").clip(0, len(self) - 1)
        found = (in_order.gather(place) == wanted).to_numpy()
        result = np.full(len(raw), NOTHING, dtype=np.int32)
        result[known.to_numpy()] = np.where(found, dense[place.to_numpy()], np.int32(-1))
        return result
