"""Requests in dense ids: whole histories, and the items eligible for each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from beamtree.data.features import Features
from beamtree.data.sequences import Sequences, cut_histories, flatten_spans
from beamtree.errors import InputError
from beamtree.types import NOTHING, AnyArray, BoolArray, Int32Array, Int64Array, IntArray


@dataclass(frozen=True, eq=False)
class Histories:
    """Whole histories as spans of one flat array: history i is `items[starts[i]:ends[i]]`, oldest item first.

    items: int32 (N,), dense ids, none missing inside a span; starts, ends: int64 (n,). Nothing is copied, so the
    histories of a log, of its held-out users and of a training batch are all views of the same sequences.
    """

    items: Int32Array
    starts: Int64Array
    ends: Int64Array

    def __post_init__(self) -> None:
        if self.starts.shape != self.ends.shape or self.starts.ndim != 1:
            raise InputError(f"Expected as many starts as ends, got {self.starts.shape} and {self.ends.shape}.")

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of_lists(cls, histories: Sequence[Sequence[int] | Int32Array]) -> "Histories":
        """Histories given one by one."""
        offsets = np.zeros(len(histories) + 1, dtype=np.int64)
        np.cumsum([len(history) for history in histories], out=offsets[1:])
        parts = [np.asarray(history, dtype=np.int32) for history in histories]
        flat = np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
        return cls(flat, offsets[:-1], offsets[1:])

    @classmethod
    def of_rows(cls, rows: Int32Array) -> "Histories":
        """Histories (n, positions) that are padded with -1; the padding is left out."""
        present = rows != NOTHING
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(present.sum(axis=1), out=offsets[1:])
        return cls(np.ascontiguousarray(rows[present], dtype=np.int32), offsets[:-1], offsets[1:])

    @property
    def lengths(self) -> Int64Array:
        """How many items each history has, (n,)."""
        return self.ends - self.starts

    def row(self, index: int) -> Int32Array:
        """One history, oldest item first: a view."""
        return self.items[self.starts[index] : self.ends[index]]

    def latest(self, length: int) -> Int32Array:
        """The last `length` items of each history, oldest first, padded in front with -1: (n, length)."""
        return cut_histories(self.items, starts=self.starts, ends=self.ends, length=length)

    def flattened(self) -> Sequences:
        """The same histories one after another, in an array of their own."""
        return Sequences(*flatten_spans(self.items, starts=self.starts, ends=self.ends))

    def take(self, rows: IntArray | slice) -> "Histories":
        """Some of the histories, in the given order."""
        return Histories(self.items, self.starts[rows], self.ends[rows])


@dataclass(frozen=True, eq=False)
class Requests:
    """Many requests at once.

    excluded: items that each request must not get, None = nothing; allowed: (items,), what any of them may get, None =
    everything; users: int32 (n,), dense, -1 = unknown; times: (n,). Users and times are None if they are not
    known. user_features, context: n rows, the features of users and contexts; None if the model reads none.
    """

    histories: Histories
    excluded: Sequences | None = None
    allowed: BoolArray | None = None
    users: Int32Array | None = None
    times: AnyArray | None = None
    user_features: Features | None = None
    context: Features | None = None

    def __post_init__(self) -> None:
        if self.excluded is not None and len(self.excluded) != len(self.histories):
            raise InputError(
                f"Expected a list of excluded items for each of {len(self.histories)} histories, "
                f"got {len(self.excluded)}."
            )
        for name in ("users", "times", "user_features", "context"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.histories):
                raise InputError(f"Expected {name} for each of {len(self.histories)} histories, got {len(values)}.")

    def __len__(self) -> int:
        return len(self.histories)

    def take(self, rows: slice) -> "Requests":
        """Some of the requests, one after another."""
        excluded = self.excluded
        if excluded is not None:
            first, end, _ = rows.indices(len(self))
            offsets = excluded.offsets[first : max(first, end) + 1]
            excluded = Sequences(excluded.items[offsets[0] : offsets[-1]], offsets - offsets[0])
        return replace(
            self,
            histories=self.histories.take(rows),
            excluded=excluded,
            users=None if self.users is None else self.users[rows],
            times=None if self.times is None else self.times[rows],
            user_features=None if self.user_features is None else self.user_features.take(rows),
            context=None if self.context is None else self.context.take(rows),
        )
