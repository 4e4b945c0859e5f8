"""Counting in the training spans: how often each item occurs, what followed what, and what came together.

Weights say what each interaction counts as something to be foreseen: an item that is pointed to is counted with the
weight of its interaction, the one that points to it as it is. None = 1 each.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beamtree import native
from beamtree.data.sequences import flatten_spans, span_places
from beamtree.data.split import Spans
from beamtree.errors import InputError
from beamtree.types import BoolArray, Float32Array, Float64Array, Int32Array, Int64Array

COMPANY_ITEMS = 400
"""So many of the latest items of a history keep each other company."""

PAIRS_AT_A_TIME = 2**22
"""Pairs that are counted together where the kernels do not: 100 MB or so."""

DENSE = 8
"""Pairs are counted in an array of all that there could be, where these are at most so many times as many."""

Counts = npt.NDArray[Any]
"""How often: whole numbers, or sums of weights in double precision."""


class CountedPairs(NamedTuple):
    """What was met with each item: the list of item h is items[offsets[h]:offsets[h + 1]], rising, with its counts."""

    offsets: Int64Array
    items: Int32Array
    counts: Counts


class Company(NamedTuple):
    """What shares spans with each item.

    had: (items,), the spans of each item; wanted: (items,), the sum over spans of its squared weights, the same where
    nothing is weighed.
    """

    pairs: CountedPairs
    had: Int64Array
    wanted: Counts

    def strengths(self, balance: float) -> Float64Array:
        """count / (had[h]^(1 - balance) * wanted[i]^balance) of each pair h, i; with a balance of 0.5, the cosine."""
        offsets, items, counts = self.pairs
        return counts / (
            np.repeat(norms_of(self.had, 1.0 - balance), np.diff(offsets)) * norms_of(self.wanted, balance)[items]
        )


def norms_of(totals: Counts, exponent: float) -> Float64Array:
    """Powers of what each item has in all, (items,), above 0."""
    norms: Float64Array = np.where(totals > 0, totals, 1).astype(np.float64) ** exponent
    return norms


def count_items(items: Int32Array, spans: Spans, *, num_items: int, weights: Float32Array | None = None) -> Counts:
    """Interactions of each item inside the spans, or their weights, (items,). items, weights: the flat sequences."""
    places, _ = span_places(spans.start, spans.end)
    inside = items[places]
    if inside.size and inside.max() >= num_items:
        raise InputError(
            f"Expected items below num_items = {num_items}, got item {inside.max()} in the training set. "
            "Give the number of items of the data set."
        )
    return np.bincount(inside, weights=None if weights is None else weights[places], minlength=num_items)


CUTS = (0.25, 0.5, 0.75)
"""Where a span is cut to see what people who had an item before did after."""


def count_returns(
    items: Int32Array, spans: Spans, *, num_items: int, weights: Float32Array | None = None
) -> tuple[Int64Array, Int64Array]:
    """How often each item had been met before a cut of a span, and how often it was then met again behind it.

    items: the flat sequences. Both (items,), over all spans and CUTS. Only interactions of a weight above 0 count as
    met again; how much they weigh makes no difference to a share.
    """
    places, offsets = span_places(spans.start, spans.end)
    flat = items[places]
    lengths = np.diff(offsets)
    row = np.repeat(np.arange(len(lengths)), lengths)
    keys = row * num_items + flat
    pairs, first = np.unique(keys, return_index=True)
    again_at = np.arange(len(flat)) if weights is None else np.flatnonzero(weights[places] > 0.0)
    returned, from_the_end = np.unique(keys[again_at][::-1], return_index=True)
    last = np.full(len(pairs), -1, dtype=np.int64)
    last[np.searchsorted(pairs, returned)] = again_at[len(again_at) - 1 - from_the_end]
    item, row = pairs % num_items, pairs // num_items
    had, again = np.zeros(num_items, dtype=np.int64), np.zeros(num_items, dtype=np.int64)
    for cut in CUTS:
        place = offsets[row] + (cut * lengths[row]).astype(np.int64)
        had += np.bincount(item[first < place], minlength=num_items)
        again += np.bincount(item[(first < place) & (last >= place)], minlength=num_items)
    return had, again


def count_followers(
    items: Int32Array, spans: Spans, *, num_items: int, window: int, most: int, weights: Float32Array | None = None
) -> CountedPairs:
    """For each item what came within `window` interactions after it in the same span, itself left out.

    items, weights: the flat sequences. Of each list the `most` frequent are kept; equal counts go to the lower item.
    Counted in the kernels where they were compiled, else in NumPy, to the same numbers.
    """
    if native.is_available():
        from beamtree.native.counting import count_followers as count_in_kernels

        return CountedPairs(
            *count_in_kernels(
                items,
                starts=spans.start,
                ends=spans.end,
                num_items=num_items,
                window=window,
                most=most,
                weights=weights,
            )
        )
    places, offsets = span_places(spans.start, spans.end)
    following = np.arange(len(places)) + 1
    ends = np.minimum(np.repeat(offsets[1:], np.diff(offsets)), following + window)
    return _count_pairs(
        items[places],
        following,
        ends,
        weights=None if weights is None else weights[places],
        num_items=num_items,
        most=most,
        rank=lambda counts, _: counts,
    )


def count_company(
    items: Int32Array,
    spans: Spans,
    *,
    num_items: int,
    most: int,
    weights: Float32Array | None = None,
    balance: float = 0.5,
) -> Company:
    """For each item the items that are in the same spans, counting a span once, with the highest weight there.

    Of each list the `most` of the highest strength are kept; ties go to the lower item.
    Only the COMPANY_ITEMS latest distinct items of a span are counted, so that no long history costs its square.
    """
    flat, offsets, highest = _latest_distinct(items, spans, num_items=num_items, weights=weights)
    starts, ends = offsets[:-1], offsets[1:]
    sizes = ends - starts
    had = np.bincount(flat, minlength=num_items)
    wanted: Counts = had if highest is None else np.bincount(flat, weights=highest**2, minlength=num_items)
    norms = norms_of(wanted, balance)
    if native.is_available():
        from beamtree.native.counting import count_company as count_in_kernels

        found = count_in_kernels(flat, starts=starts, ends=ends, norms=norms, most=most, weights=highest)
        return Company(CountedPairs(*found), had, wanted)
    pairs = _count_pairs(
        flat,
        np.repeat(starts, sizes),
        np.repeat(ends, sizes),
        weights=highest,
        num_items=num_items,
        most=most,
        rank=lambda counts, targets: counts / norms[targets],
    )
    return Company(pairs, had, wanted)


def _latest_distinct(
    items: Int32Array, spans: Spans, *, num_items: int, weights: Float32Array | None
) -> tuple[Int32Array, Int64Array, Float64Array | None]:
    """The latest distinct items of each span, flat, offsets that tell the spans apart, and the highest weight of each
    item in its span."""
    places, offsets = span_places(spans.start, spans.end)
    flat = items[places]
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    keys = (row * num_items + flat)[::-1]
    _, from_the_end, pair = np.unique(keys, return_index=True, return_inverse=True)
    latest = len(flat) - 1 - from_the_end
    order = np.argsort(latest)
    highest = None
    if weights is not None:
        best = np.zeros(len(latest))
        np.maximum.at(best, pair, weights[places][::-1])
        highest = best[order]
    latest = latest[order]
    counts = np.bincount(row[latest], minlength=len(offsets) - 1)
    ends = np.cumsum(counts)
    starts = np.maximum(ends - counts, ends - COMPANY_ITEMS)
    distinct, bounds = flatten_spans(flat[latest], starts=starts, ends=ends)
    if highest is not None:
        highest = highest[span_places(starts, ends)[0]]
    return distinct, bounds, highest


def _count_pairs(
    flat: Int32Array,
    firsts: Int64Array,
    ends: Int64Array,
    *,
    weights: npt.NDArray[np.floating[Any]] | None,
    num_items: int,
    most: int,
    rank: Callable[[npt.NDArray[Any], Int64Array], npt.NDArray[Any]],
) -> CountedPairs:
    """For each item the others that its places in a flat array point to, with the sum of their weights.

    The place p points to the places firsts[p] .. ends[p] - 1. Of each list the `most` that rank highest by their counts
    and items are kept; ties go to the lower item. What adds up to 0 is no pair.
    """
    sizes = np.maximum(ends - firsts, 0)
    found: list[tuple[Int64Array, npt.NDArray[Any]]] = []
    for places in _by_source(flat, sizes, num_items=num_items):
        own = sizes[places]
        source = np.repeat(flat[places].astype(np.int64), own)
        place = np.arange(len(source)) + np.repeat(firsts[places] - (np.cumsum(own) - own), own)
        is_other = source != flat[place]
        if not is_other.any():
            continue
        keys, counts = _summed(
            (source * num_items + flat[place])[is_other], None if weights is None else weights[place][is_other]
        )
        kept = strongest(keys, rank(counts, keys % num_items), num_items=num_items, most=most)
        found.append((keys[kept], counts[kept]))
    keys = np.concatenate([keys for keys, _ in found] or [np.empty(0, dtype=np.int64)])
    counts = np.concatenate([counts for _, counts in found] or [np.empty(0, dtype=np.int64)])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(keys // num_items, minlength=num_items))]).astype(np.int64)
    return CountedPairs(
        offsets, (keys % num_items).astype(np.int32), counts.astype(np.uint32) if weights is None else counts
    )


def _summed(keys: Int64Array, weights: npt.NDArray[Any] | None) -> tuple[Int64Array, npt.NDArray[Any]]:
    """Distinct keys of (n,), n > 0, rising, and how often each occurs, or the sum of its weights where above 0."""
    lowest = keys.min()
    room = int(keys.max() - lowest) + 1
    if room <= DENSE * len(keys):
        counts = np.bincount(keys - lowest, weights=weights, minlength=room)
        found = np.flatnonzero(counts)
        return found + lowest, counts[found]
    order = np.argsort(keys, kind="stable")  # so that weights are added in the order of the log, as in the kernels
    keys = keys[order]
    is_first = np.concatenate([[True], keys[1:] != keys[:-1]])
    distinct = keys[is_first]
    if weights is None:
        return distinct, np.diff(np.append(np.flatnonzero(is_first), len(keys)))
    sums = np.bincount(np.cumsum(is_first) - 1, weights=weights[order])
    return distinct[sums > 0.0], sums[sums > 0.0]


def _by_source(flat: Int32Array, sizes: Int64Array, *, num_items: int) -> Iterator[Int64Array]:
    """The places of a few items at a time, rising by item, which have about PAIRS_AT_A_TIME pairs together."""
    order = np.argsort(flat, kind="stable")
    pairs = np.bincount(flat, weights=sizes, minlength=num_items)
    block = (np.cumsum(pairs) - pairs) // PAIRS_AT_A_TIME
    bounds = np.searchsorted(block[flat[order]], np.unique(block), side="left")
    for places in np.split(order, bounds[1:]):
        if places.size:
            yield places


def strongest(keys: Int64Array, rank_by: npt.NDArray[Any], *, num_items: int, most: int) -> BoolArray:
    """Which of pairs source * items + target, rising, are among the `most` of their source; ties: the lower target."""
    _, firsts = np.unique(keys // num_items, return_index=True)
    kept = np.ones(len(keys), dtype=np.bool_)
    for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(keys)], strict=True):
        if end - first > most:
            ranks = rank_by[first:end]
            lowest = np.partition(ranks, end - first - most)[end - first - most]
            kept[first:end] = ranks > lowest
            ties = np.flatnonzero(ranks == lowest)
            kept[first + ties[: most - np.count_nonzero(ranks > lowest)]] = True
    return kept


@dataclass(frozen=True)
class Counters:
    """Who counts: the functions of this file, or others that give the very same numbers."""

    items: Callable[..., Counts] = count_items
    returns: Callable[..., tuple[Int64Array, Int64Array]] = count_returns
    followers: Callable[..., CountedPairs] = count_followers
    company: Callable[..., Company] = count_company


HERE = Counters()
"""Counts in this process."""
