"""All histories in one flat array, and windows cut from it for batches."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from beamtree.errors import DataError
from beamtree.types import NOTHING, Float32Array, Int32Array, Int64Array


@dataclass(frozen=True, eq=False, repr=False)
class Sequences:
    """The interactions of every user, oldest first: user u owns `items[offsets[u]:offsets[u + 1]]`.

    items: int32 (N,), dense item ids; offsets: int64 (users + 1,), from 0 to N, never falling. weights: float32 (N,),
    what each interaction counts as a target, 0 = it is history alone; None = 1 each. Else DataError.
    """

    items: Int32Array
    offsets: Int64Array
    weights: Float32Array | None = None

    def __post_init__(self) -> None:
        items, offsets = self.items, self.offsets
        if items.dtype != np.int32 or items.ndim != 1:
            raise DataError(f"Sequence items are a flat int32 array, got {items.dtype} of shape {items.shape}.")
        if offsets.dtype != np.int64 or offsets.ndim != 1 or len(offsets) == 0:
            raise DataError(f"Sequence offsets are int64, one more than users, got {offsets.dtype} {offsets.shape}.")
        if offsets[0] != 0 or offsets[-1] != len(items) or (np.diff(offsets) < 0).any():
            raise DataError(f"Sequence offsets rise from 0 to {len(items)}, got {offsets[0]} .. {offsets[-1]}.")
        weights = self.weights
        if weights is None:
            return
        if weights.dtype != np.float32 or weights.shape != items.shape:
            raise DataError(f"Weights are float32, one per interaction, got {weights.dtype} {weights.shape}.")
        if not (np.isfinite(weights) & (weights >= 0.0)).all():
            raise DataError("Weights of interactions are finite and at least 0, but some are not.")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Sequences({len(self):,} users, {len(self.items):,} interactions)"

    @property
    def lengths(self) -> Int64Array:
        """Interactions per user, int64 (users,)."""
        return np.diff(self.offsets)

    @cached_property
    def target_places(self) -> Int64Array | None:
        """Where in the flat items the interactions are that may be targets, rising; None: all of them may."""
        if self.weights is None or (self.weights > 0.0).all():
            return None
        return np.flatnonzero(self.weights > 0.0)

    def count_targets(self, starts: Int64Array, ends: Int64Array) -> Int64Array:
        """How many interactions of each span items[start:end], (n,), may be targets."""
        places = self.target_places
        if places is None:
            return np.asarray(ends - starts)
        return np.searchsorted(places, ends) - np.searchsorted(places, starts)

    def of(self, user: int) -> Int32Array:
        """The items of one user, oldest first: a view. IndexError outside 0 .. users-1."""
        if not 0 <= user < len(self):
            raise IndexError(f"user {user} of {len(self)}")
        return self.items[self.offsets[user] : self.offsets[user + 1]]


def cut_histories(
    items: Int32Array,
    *,
    starts: Int64Array,
    ends: Int64Array,
    length: int,
) -> Int32Array:
    """The last `length` items of each span items[start:end], oldest first, padded in front with -1.

    items: (N,); starts, ends: (n,) with 0 <= start <= end <= N; returns (n, length).
    """
    positions = np.asarray(ends, dtype=np.int64)[:, None] + np.arange(-length, 0, dtype=np.int64)
    inside = positions >= np.asarray(starts, dtype=np.int64)[:, None]
    if not inside.any():
        return np.full(positions.shape, NOTHING, dtype=np.int32)
    return np.where(inside, items[np.where(inside, positions, 0)], np.int32(NOTHING))


def flatten_spans(
    items: Int32Array,
    *,
    starts: Int64Array,
    ends: Int64Array,
) -> tuple[Int32Array, Int64Array]:
    """The concatenated items of all spans, and their offsets (n + 1,)."""
    places, offsets = span_places(starts, ends)
    return np.asarray(items[places], dtype=np.int32), offsets


def span_places(starts: Int64Array, ends: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The concatenated positions start .. end - 1 of all spans, and their offsets (n + 1,)."""
    lengths = ends - starts
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return np.arange(offsets[-1], dtype=np.int64) + np.repeat(starts - offsets[:-1], lengths), offsets


def flatten_targets(sequences: Sequences, *, starts: Int64Array, ends: Int64Array) -> tuple[Int32Array, Int64Array]:
    """The concatenated possible targets of all spans, and their offsets (n + 1,)."""
    places = sequences.target_places
    if places is None:
        return flatten_spans(sequences.items, starts=starts, ends=ends)
    first, end = np.searchsorted(places, starts), np.searchsorted(places, ends)
    return flatten_spans(sequences.items[places], starts=first, ends=end)
