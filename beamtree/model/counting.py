"""Counting in the training spans: how often each item occurs, and what followed what."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beamtree import native
from beamtree.data.sequences import flatten_spans
from beamtree.data.split import Spans
from beamtree.errors import InputError
from beamtree.types import Int32Array, Int64Array


class Followers(NamedTuple):
    """What came after each item: the list of item h is items[offsets[h]:offsets[h + 1]], rising, with its counts."""

    offsets: Int64Array
    items: Int32Array
    counts: npt.NDArray[np.uint32]


def count_items(items: Int32Array, spans: Spans, *, num_items: int) -> Int64Array:
    """Interactions of each item inside the spans, (items,). items: the flat sequences."""
    inside, _ = flatten_spans(items, starts=spans.start, ends=spans.end)
    if inside.size and inside.max() >= num_items:
        raise InputError(
            f"Expected items below num_items = {num_items}, got item {inside.max()} in the training set. "
            "Give the number of items of the data set."
        )
    return np.bincount(inside, minlength=num_items)


def count_followers(items: Int32Array, spans: Spans, *, num_items: int, window: int, most: int) -> Followers:
    """For each item what came within `window` interactions after it in the same span, itself left out.

    items: the flat sequences. Of each list the `most` frequent are kept; equal counts go to the lower item. Counted in
    the kernels where they were compiled, else in NumPy.
    """
    if native.is_available():
        from beamtree.native.counting import count_followers as count_in_kernels

        return Followers(
            *count_in_kernels(items, starts=spans.start, ends=spans.end, num_items=num_items, window=window, most=most)
        )
    return _count_in_numpy(items, spans, num_items=num_items, window=window, most=most)


def _count_in_numpy(items: Int32Array, spans: Spans, *, num_items: int, window: int, most: int) -> Followers:
    flat, offsets = flatten_spans(items, starts=spans.start, ends=spans.end)
    left = np.repeat(offsets[1:], np.diff(offsets)) - np.arange(len(flat))
    keys, counts = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for distance in range(1, window + 1):
        first = np.flatnonzero(left > distance)
        before, after = flat[first].astype(np.int64), flat[first + distance]
        pairs = (before * num_items + after)[before != after]
        keys, place = np.unique(np.concatenate([keys, pairs]), return_inverse=True)
        counts = np.bincount(place, weights=np.concatenate([counts, np.ones(len(pairs))])).astype(np.int64)
    source, target = keys // num_items, keys % num_items
    order = np.lexsort((target, -counts, source))
    first_of_source = np.searchsorted(source, np.arange(num_items + 1))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - first_of_source[source[order]]
    kept = rank < most
    ends = np.concatenate([[0], np.cumsum(np.bincount(source[kept], minlength=num_items))]).astype(np.int64)
    return Followers(ends, target[kept].astype(np.int32), counts[kept].astype(np.uint32))
