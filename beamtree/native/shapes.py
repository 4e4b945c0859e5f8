"""Shapes of stored arrays, checked before anything is computed with them."""

from collections.abc import Mapping
from typing import Any

from beamtree.errors import InputError


def checked_shape(arrays: Mapping[str, Any], name: str, shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """The shape of one of the arrays; InputError where there is none of that name or it has another shape.

    shape: None stands for any size of at least 1.
    """
    wanted = "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
    if name not in arrays:
        raise InputError(
            f"Expected the array {name} of shape {wanted}, got none of that name. Save or download the model again."
        )
    found = tuple(arrays[name].shape)
    fits = len(found) == len(shape) and all(
        size == wish if wish is not None else size >= 1 for size, wish in zip(found, shape, strict=True)
    )
    if not fits:
        raise InputError(
            f"Expected the array {name} of shape {wanted}, got {found}. Use the tree and the settings that it was "
            "learned with."
        )
    return found
