"""What a search takes and gives, in dense ids."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
Ragged = tuple[Int32Array, Int64Array]
"""Lists of items, one after the other, and the offsets at which each begins, closed by the total."""


@dataclass(frozen=True)
class Found:
    """Items (requests, k), best first, -1 where fewer were eligible, and their scores, -inf there."""

    items: Int32Array
    scores: Float32Array
