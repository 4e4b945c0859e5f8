"""Counts of the log in the kernels: what followed what and what came together, in one pass and in bounded memory.

weights: (length of items,), 0 or more, what each interaction counts where it is pointed to; sums are in double
precision, added in the order of the log. None: whole numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamtree.native import _kernels
from beamtree.types import AnyArray, Float64Array, Int32Array, Int64Array

Found = tuple[Int64Array, Int32Array, AnyArray]
"""Offsets (items + 1,), items and counts: lists that rise by item."""


def count_followers(
    items: Int32Array,
    *,
    starts: Int64Array,
    ends: Int64Array,
    num_items: int,
    window: int,
    most: int,
    weights: NDArray[np.floating[Any]] | None = None,
) -> Found:
    """What came within `window` positions after each item of the spans; an item does not follow itself.

    The `most` frequent of each list are kept, equal counts by the lower item.
    """
    flat = np.ascontiguousarray(items)
    if weights is None:
        return _kernels.count_followers(flat, starts, ends, num_items, window, most)
    return _kernels.count_followers(flat, starts, ends, num_items, window, most, _doubles(weights))


def count_company(
    items: Int32Array,
    *,
    starts: Int64Array,
    ends: Int64Array,
    totals: AnyArray,
    most: int,
    weights: NDArray[np.floating[Any]] | None = None,
) -> Found:
    """What shares spans with each item; a span holds an item once at most.

    totals: (items,), in how many spans each item is, or with weights the sum of its squared ones. The `most` of the
    highest cosine are kept of each list.
    """
    flat = np.ascontiguousarray(items)
    if weights is None:
        return _kernels.count_company(flat, starts, ends, totals, most)
    return _kernels.count_weighted_company(flat, starts, ends, _doubles(totals), most, _doubles(weights))


def _doubles(numbers: AnyArray) -> Float64Array:
    return np.ascontiguousarray(numbers, dtype=np.float64)
