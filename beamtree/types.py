"""Array types that appear in signatures throughout, and the one mark for "nothing here"."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
Int8Array = npt.NDArray[np.int8]
IntArray = npt.NDArray[np.integer]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
FloatArray = npt.NDArray[np.floating]

NOTHING: Final = -1
"""Stands where there is no item: padding, an unknown id, a vacant leaf, a missing target."""
