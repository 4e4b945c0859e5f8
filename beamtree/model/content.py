"""The vector that an item is likely to have, from its features alone: a regression on the items that are known."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from beamtree.data.features import Features, FeatureSchema
from beamtree.types import Float32Array, Float64Array

RIDGE = 1.0
STEPS = 30
"""Of conjugate gradients: far more than so few kinds of features need."""


@dataclass(frozen=True, eq=False)
class ContentModel:
    """From features to the vector that an item is likely to have: a ridge regression on the vectors of known items.

    coefficients: float32 (1 + rows of the schema + numbers in vectors, width), the intercept first.
    """

    schema: FeatureSchema
    coefficients: Float32Array

    @classmethod
    def fit(cls, schema: FeatureSchema, features: Features, vectors: Float32Array, *, weights: Float64Array) -> Self:
        """Explain vectors (items, width) by the items' features; weights (items,): what each item counts."""
        design = _Design(features, num_rows=schema.num_rows)
        scale = weights / max(float(weights.mean()), 1e-12)
        solved = _conjugate_gradients(
            lambda x: design.transposed(scale[:, None] * design.times(x)) + RIDGE * x,
            design.transposed(scale[:, None] * vectors.astype(np.float64)),
        )
        return cls(schema, solved.astype(np.float32))

    def vectors(self, features: Features) -> Float32Array:
        """The vectors (n, width) that features suggest."""
        design = _Design(features, num_rows=self.schema.num_rows)
        return design.times(self.coefficients.astype(np.float64)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class _Design:
    """The matrix of a regression on features, never written out: an intercept, the schema's rows, vectors."""

    features: Features
    num_rows: int

    def times(self, coefficients: Float64Array) -> Float64Array:
        """(items, width) from (columns, width)."""
        rows = coefficients[1 : 1 + self.num_rows]
        product = coefficients[:1] + self.features.vectors @ coefficients[1 + self.num_rows :]
        for place in range(self.features.entries.shape[1]):
            product += self.features.weights[:, place, None] * rows[self.features.entries[:, place]]
        return product

    def transposed(self, residuals: Float64Array) -> Float64Array:
        """(columns, width) from (items, width)."""
        rows = np.zeros((self.num_rows, residuals.shape[1]))
        for place in range(self.features.entries.shape[1]):
            entries, weights = self.features.entries[:, place], self.features.weights[:, place]
            order = np.argsort(entries, kind="stable")
            first = np.flatnonzero(np.diff(entries[order], prepend=-1))
            rows[entries[order][first]] += np.add.reduceat((weights[:, None] * residuals)[order], first, axis=0)
        return np.concatenate([residuals.sum(axis=0, keepdims=True), rows, self.features.vectors.T @ residuals])


def _conjugate_gradients(apply: Callable[[Float64Array], Float64Array], right: Float64Array) -> Float64Array:
    """Solve a symmetric positive system for all columns of the right-hand side (n, columns) at once."""
    solution, residual = np.zeros_like(right), right.copy()
    direction, square = residual.copy(), (residual**2).sum(axis=0)
    for _ in range(STEPS):
        applied = apply(direction)
        length = square / np.maximum((direction * applied).sum(axis=0), 1e-30)
        solution += length * direction
        residual -= length * applied
        new_square = (residual**2).sum(axis=0)
        direction = residual + new_square / np.maximum(square, 1e-30) * direction
        square = new_square
    return solution
