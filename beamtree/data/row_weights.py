"""Weights of interactions as targets: by event type, decayed by age.

A row of weight 0 is history only: part of inputs, never a target. Decay never takes a weight to 0.
"""

from typing import Final

import numpy as np
import polars as pl

from beamtree.data.parse import seconds_per_unit
from beamtree.errors import DataError
from beamtree.types import AnyArray, Float32Array, Float64Array

SECONDS_PER_DAY: Final = 86_400.0
SMALLEST: Final = np.float32(1e-30)
"""The lowest weight of an old row: negligible, but not 0, which marks rows that are no targets."""


def time_decay(times: AnyArray, *, newest: float, half_life_days: float) -> Float64Array:
    """What interactions of these times (n,) count beside one of the newest time: 2^-(days between them / half-life).

    DataError where the times are no dates.
    """
    unit = seconds_per_unit(pl.Series([newest]))
    if unit is None:
        raise DataError(
            f"log.half_life_days = {half_life_days:g} needs dates, but the times of this log end at {newest!r}, which "
            "is no date in s, ms, us or ns since 1970. Give a log with dates, or leave the half-life out."
        )
    days = (newest - times.astype(np.float64)) * (unit / SECONDS_PER_DAY)
    found: Float64Array = np.exp2(-days / half_life_days)
    return found


def decayed(weights: Float32Array | None, decay: Float64Array) -> Float32Array:
    """Weights (n,), None = 1 each, times what is left of them after a time, (n,)."""
    if weights is None:
        return np.maximum(decay.astype(np.float32), SMALLEST)
    product = (weights * decay).astype(np.float32)
    return np.where(weights > 0.0, np.maximum(product, SMALLEST), np.float32(0.0))


def none_if_equal(weights: Float32Array | None) -> Float32Array | None:
    """None if all weights are 1, so that explicit weights of 1 do not change the log."""
    return None if weights is None or bool((weights == 1.0).all()) else weights
