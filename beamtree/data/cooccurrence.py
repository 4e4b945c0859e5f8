"""Item vectors by a truncated SVD of the user-item matrix."""

import numpy as np

from beamtree.data.sequences import Sequences, flatten_spans
from beamtree.data.split import Spans
from beamtree.types import Float32Array

ROUNDING = 1e-6
"""Singular values below this share of the largest are zero in single precision."""


def cooccurrence_vectors(
    sequences: Sequences, spans: Spans, *, num_items: int, size: int, generator: np.random.Generator
) -> Float32Array:
    """Unit vectors (items, size) from a truncated SVD of the user-item matrix of the training spans.

    Rows are scaled by the inverse root of a user's activity, so that the most active users do not dominate; items
    without interactions or outside these directions get the zero vector, and directions beyond the rank of a small log
    are zero. Needs scikit-learn.
    """
    from scipy.sparse import csr_matrix
    from sklearn.utils.extmath import randomized_svd

    items, offsets = flatten_spans(sequences.items, starts=spans.start, ends=spans.end)
    counts = np.diff(offsets)
    values = np.repeat(np.maximum(counts, 1).astype(np.float32) ** -0.5, counts)
    matrix = csr_matrix((values, items, offsets), shape=(len(counts), num_items))
    matrix.sum_duplicates()
    matrix.data = np.minimum(matrix.data, 1.0)
    components = min(size, *matrix.shape)
    _, strengths, directions = randomized_svd(matrix, components, random_state=int(generator.integers(2**31)))
    # Beyond the rank of the matrix, and for items outside the span of the directions, there is nothing but rounding.
    strengths = np.where(strengths > ROUNDING * strengths.max(), strengths, 0.0)
    vectors = (directions.T * np.sqrt(strengths)).astype(np.float32)
    vectors[np.bincount(items, minlength=num_items) == 0] = 0.0
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    is_known = lengths > ROUNDING * lengths.max()
    known = np.zeros((num_items, size), dtype=np.float32)
    np.divide(vectors, lengths, out=known[:, :components], where=is_known)
    return known
