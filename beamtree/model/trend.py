"""What is in demand at a moment: interactions before it, each counting half after every half-life."""

import numpy as np

from beamtree.types import AnyArray, Float32Array, Int32Array


def trend_at(moment: float, times: AnyArray, items: Int32Array, *, num_items: int, half_life: float) -> Float32Array:
    """ln(1 + faded count) of each item (items,) from interactions (n,) up to a moment; later ones do not count.

    half_life: in the units of the times.
    """
    before = times <= moment
    faded = np.exp2((times[before].astype(np.float64) - moment) / half_life)
    trend: Float32Array = np.log1p(np.bincount(items[before], weights=faded, minlength=num_items)).astype(np.float32)
    return trend
