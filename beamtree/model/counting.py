"""Counting in the training spans: how often each item occurs, what followed what, and what came together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beamtree import native
from beamtree.data.sequences import flatten_spans
from beamtree.data.split import Spans
from beamtree.errors import InputError
from beamtree.types import Int32Array, Int64Array

COMPANY_ITEMS = 400
"""So many of the latest items of a history keep each other company."""


class CountedPairs(NamedTuple):
    """What was met with each item: the list of item h is items[offsets[h]:offsets[h + 1]], rising, with its counts."""

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


CUTS = (0.25, 0.5, 0.75)
"""Where a span is cut to see what people who had an item before did after."""


def count_returns(items: Int32Array, spans: Spans, *, num_items: int) -> tuple[Int64Array, Int64Array]:
    """How often each item had been met before a cut of a span, and how often it was then met again behind it.

    items: the flat sequences. Both (items,), over all spans and CUTS.
    """
    flat, offsets = flatten_spans(items, starts=spans.start, ends=spans.end)
    lengths = np.diff(offsets)
    row = np.repeat(np.arange(len(lengths)), lengths)
    keys = row * num_items + flat
    pairs, first = np.unique(keys, return_index=True)
    _, from_the_end = np.unique(keys[::-1], return_index=True)
    last = len(flat) - 1 - from_the_end
    item, row = pairs % num_items, pairs // num_items
    had, again = np.zeros(num_items, dtype=np.int64), np.zeros(num_items, dtype=np.int64)
    for cut in CUTS:
        place = offsets[row] + (cut * lengths[row]).astype(np.int64)
        had += np.bincount(item[first < place], minlength=num_items)
        again += np.bincount(item[(first < place) & (last >= place)], minlength=num_items)
    return had, again


def count_followers(items: Int32Array, spans: Spans, *, num_items: int, window: int, most: int) -> CountedPairs:
    """For each item what came within `window` interactions after it in the same span, itself left out.

    items: the flat sequences. Of each list the `most` frequent are kept; equal counts go to the lower item. Counted in
    the kernels where they were compiled, else in NumPy.
    """
    if native.is_available():
        from beamtree.native.counting import count_followers as count_in_kernels

        return CountedPairs(
            *count_in_kernels(items, starts=spans.start, ends=spans.end, num_items=num_items, window=window, most=most)
        )
    return _count_in_numpy(items, spans, num_items=num_items, window=window, most=most)


def _count_in_numpy(items: Int32Array, spans: Spans, *, num_items: int, window: int, most: int) -> CountedPairs:
    flat, offsets = flatten_spans(items, starts=spans.start, ends=spans.end)
    left = np.repeat(offsets[1:], np.diff(offsets)) - np.arange(len(flat))
    keys, counts = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for distance in range(1, window + 1):
        first = np.flatnonzero(left > distance)
        before, after = flat[first].astype(np.int64), flat[first + distance]
        pairs = (before * num_items + after)[before != after]
        keys, place = np.unique(np.concatenate([keys, pairs]), return_inverse=True)
        counts = np.bincount(place, weights=np.concatenate([counts, np.ones(len(pairs))])).astype(np.int64)
    return keep_most(keys, counts, rank_by=counts, num_items=num_items, most=most)


def count_company(items: Int32Array, spans: Spans, *, num_items: int, most: int) -> tuple[CountedPairs, Int64Array]:
    """For each item the items that are in the same spans, counting a span once; and the spans (items,) of each item.

    Of each list the `most` with the highest cosine, count / sqrt(spans of both), are kept; ties go to the lower item.
    A span counts with its COMPANY_ITEMS latest distinct items, so that nobody's long history costs its square.
    """
    flat, starts, ends = _latest_distinct(items, spans, num_items=num_items)
    totals = np.bincount(flat, minlength=num_items)
    if native.is_available():
        from beamtree.native.counting import count_company as count_in_kernels

        return CountedPairs(*count_in_kernels(flat, starts=starts, ends=ends, totals=totals, most=most)), totals
    sizes = ends - starts
    row = np.repeat(np.arange(len(flat)), np.repeat(sizes, sizes))
    column = np.concatenate([np.tile(np.arange(a, b), b - a) for a, b in zip(starts, ends, strict=True)] or [row])
    source, target = flat[row].astype(np.int64), flat[column]
    keys, counts = np.unique((source * num_items + target)[source != target], return_counts=True)
    ranked = counts / np.sqrt(np.maximum(totals, 1))[keys % num_items]
    return keep_most(keys, counts, rank_by=ranked, num_items=num_items, most=most), totals


def _latest_distinct(items: Int32Array, spans: Spans, *, num_items: int) -> tuple[Int32Array, Int64Array, Int64Array]:
    """The latest distinct items of each span, flat, and where each span starts and ends in them."""
    flat, offsets = flatten_spans(items, starts=spans.start, ends=spans.end)
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    keys = (row * num_items + flat)[::-1]
    _, from_the_end = np.unique(keys, return_index=True)
    latest = np.sort(len(flat) - 1 - from_the_end)
    counts = np.bincount(row[latest], minlength=len(offsets) - 1)
    ends = np.cumsum(counts)
    starts = np.maximum(ends - counts, ends - COMPANY_ITEMS)
    distinct, bounds = flatten_spans(flat[latest], starts=starts, ends=ends)
    return distinct, bounds[:-1], bounds[1:]


def keep_most(
    keys: Int64Array, counts: Int64Array, *, rank_by: npt.NDArray[Any], num_items: int, most: int
) -> CountedPairs:
    """Of pairs source * items + target, rising, the `most` of each source that rank highest; ties: the lower target."""
    source, target = keys // num_items, keys % num_items
    order = np.lexsort((target, -rank_by, source))
    first_of_source = np.searchsorted(source, np.arange(num_items + 1))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - first_of_source[source[order]]
    kept = rank < most
    ends = np.concatenate([[0], np.cumsum(np.bincount(source[kept], minlength=num_items))]).astype(np.int64)
    return CountedPairs(ends, target[kept].astype(np.int32), counts[kept].astype(np.uint32))


@dataclass(frozen=True)
class Counters:
    """Who counts: the functions of this file, or others that give the very same numbers."""

    items: Callable[..., Int64Array] = count_items
    returns: Callable[..., tuple[Int64Array, Int64Array]] = count_returns
    followers: Callable[..., CountedPairs] = count_followers
    company: Callable[..., tuple[CountedPairs, Int64Array]] = count_company


HERE = Counters()
"""Counts in this process."""
