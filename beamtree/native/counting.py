"""Counts of the log in the kernels: what followed what, in one pass and in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamtree.native import _kernels


def count_followers(
    items: NDArray[np.int32],
    *,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    num_items: int,
    window: int,
    most: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint32]]:
    """Offsets (items + 1,), items and counts of what came within `window` positions after each item of the spans.

    An item does not follow itself. Lists rise by item; the `most` frequent are kept, equal counts by the lower item.
    """
    return _kernels.count_followers(np.ascontiguousarray(items), starts, ends, num_items, window, most)


def count_company(
    items: NDArray[np.int32],
    *,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    totals: NDArray[np.int64],
    most: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint32]]:
    """Offsets (items + 1,), items and counts of what shares spans with each item; a span holds an item once at most.

    totals: (items,), in how many spans each item is. Lists rise by item; the `most` of the highest cosine are kept.
    """
    return _kernels.count_company(np.ascontiguousarray(items), starts, ends, totals, most)
