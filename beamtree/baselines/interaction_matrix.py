"""Histories as a sparse matrix, for baselines of linear algebra. Needs SciPy."""

from typing import TYPE_CHECKING

import numpy as np

from beamtree.data.dataset import Dataset
from beamtree.data.requests import Histories
from beamtree.data.split import Split

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


def interaction_matrix(histories: Histories, *, num_items: int) -> "csr_matrix":
    """CSR float32 (histories, items): 1 where an item occurs in a history, however often."""
    from scipy.sparse import csr_matrix

    flat = histories.flattened()
    matrix = csr_matrix(
        (np.ones(len(flat.items), dtype=np.float32), flat.items, flat.offsets), shape=(len(flat), num_items)
    )
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def training_matrix(dataset: Dataset, split: Split) -> "csr_matrix":
    """The matrix of the training spans."""
    spans = Histories(dataset.sequences.items, split.train.start, split.train.end)
    return interaction_matrix(spans, num_items=len(dataset.items))
