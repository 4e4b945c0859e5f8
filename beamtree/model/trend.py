"""What is in demand at a moment: interactions before it, each counting half after every half-life."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from beamtree.types import AnyArray, Float32Array, Int32Array


@dataclass(frozen=True, eq=False)
class Trend:
    """Recent demand for each item at a moment: float32 (items,), ln(1 + decayed count); empty if it was not counted.

    half_life, moment: in the units of the log's times.
    """

    demand: Float32Array = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    half_life: float = 1.0
    moment: float = 0.0

    @classmethod
    def count(
        cls,
        times: AnyArray,
        items: Int32Array,
        *,
        num_items: int,
        half_life: float,
        weights: Float32Array | None = None,
    ) -> Self:
        """Of interactions (n,), as of the last of them; weights: (n,), what each counts, None = 1."""
        moment = float(times.max(initial=0))
        faded = np.exp2((times.astype(np.float64) - moment) / half_life)
        counts = np.bincount(items, weights=faded if weights is None else faded * weights, minlength=num_items)
        return cls(np.log1p(counts).astype(np.float32), half_life, moment)
