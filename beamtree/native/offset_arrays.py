"""Offsets of requests in NumPy: the summed embeddings of the features of user and context.

offset of a request  =  vector of the user's features  +  vector of the context's features
vector of features   =  sum over their entries of weight * embedding[entry]  +  vector @ projection

Two parts of the score have tables of their own: the tower adds the offset to the encoded history, attention to the
first layer of its perceptron, before the normalisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from beamtree.data.features import Features
from beamtree.data.requests import Requests
from beamtree.errors import InputError
from beamtree.native.shapes import checked_shape
from beamtree.types import AnyArray, Float32Array

USER, CONTEXT = "offset.user", "offset.context"
"""What the names of the arrays begin with."""
OFFSET_TABLES = tuple(f"{prefix}.{table}" for prefix in (USER, CONTEXT) for table in ("embedding", "projection"))
"""The names of all arrays that a part can have; each has rows of the width of the vector that it is added to."""


@dataclass(frozen=True, eq=False)
class FeatureArrays:
    """embedding: (rows of the schema, width); projection: (numbers in vectors, width), None where there are none."""

    embedding: Float32Array
    projection: Float32Array | None

    def vectors(self, features: Features) -> Float32Array:
        """(rows, width), float32; a row does not depend on the rows beside it, not even in its last bit.

        InputError where the features were encoded for other tables.
        """
        width = self.embedding.shape[1]
        projection = np.empty((0, width), dtype=np.float32) if self.projection is None else self.projection
        size = len(projection)
        if features.vectors.shape[1] != size or features.entries.max(initial=0) >= len(self.embedding):
            raise InputError(
                f"Expected features for {len(self.embedding)} rows and vectors of {size} numbers, got entries up to "
                f"{features.entries.max(initial=0)} and {features.vectors.shape[1]} numbers. Encode them with the "
                "columns that the model was fitted with."
            )
        summed = np.zeros((len(features), width), dtype=np.float32)
        for place in range(features.entries.shape[1]):
            summed += features.weights[:, place, None] * self.embedding[features.entries[:, place]]
        # One number after the other: the order of the sums in a matrix product may depend on the number of rows.
        for place, row in enumerate(projection):
            summed += features.vectors[:, place, None] * row
        return summed


@dataclass(frozen=True, eq=False)
class OffsetArrays:
    """The tables of a part that reads features of users, of contexts, or of both."""

    user: FeatureArrays | None
    context: FeatureArrays | None

    @classmethod
    def of(cls, arrays: Mapping[str, AnyArray], *, width: int) -> OffsetArrays | None:
        """From arrays by name, such as offset.user.embedding; None where there are none.

        InputError where an array is of another shape or type.
        """
        user, context = (_tables(arrays, prefix, width=width) for prefix in (USER, CONTEXT))
        return None if user is None and context is None else cls(user, context)

    def offsets(self, requests: Requests) -> Float32Array | None:
        """(requests, width); None if the requests have no features of users and contexts."""
        pairs = ((self.user, requests.user_features), (self.context, requests.context))
        found = [tables.vectors(features) for tables, features in pairs if tables is not None and features is not None]
        return sum(found[1:], start=found[0]) if found else None


def _tables(arrays: Mapping[str, AnyArray], prefix: str, *, width: int) -> FeatureArrays | None:
    embedding, projection = f"{prefix}.embedding", f"{prefix}.projection"
    if embedding not in arrays:
        return None
    for name in (embedding, projection):
        if name in arrays:
            checked_shape(arrays, name, (None, width))
            if arrays[name].dtype != np.float32:
                raise InputError(
                    f"Expected {name} as float32, got {arrays[name].dtype}. Save or download the model again."
                )
    return FeatureArrays(arrays[embedding], arrays.get(projection))
