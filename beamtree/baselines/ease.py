"""EASE: the linear item-to-item model with a closed form (Steck, WWW 2019). Needs SciPy.

With X the binary matrix (training spans, items) and P = (X'X + lambda I)^-1, the weight of an item of the history
for another is B[item, other] = -P[item, other] / P[other, other], 0 for itself.
"""

import numpy as np

from beamtree.baselines.interaction_matrix import interaction_matrix, training_matrix
from beamtree.baselines.popularity import scored_or_popular
from beamtree.baselines.protocol import Budget
from beamtree.baselines.tuning import choose
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.errors import BaselineUnavailable
from beamtree.evaluation.answers import ScoredItems
from beamtree.types import Float32Array, Float64Array

MAX_ITEMS = 10_000
"""The inverse of (items, items) takes 2.5 GB and a minute for each lambda at this size."""
LAMBDAS = (500.0, 2000.0, 8000.0)
"""To choose from."""


class Ease:
    """Summed weights of the items of the history; popular items if it is empty."""

    name = "ease"

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> ScoredItems:
        """As `Baseline.fit`; BaselineUnavailable for more than MAX_ITEMS items."""
        num_items = len(dataset.items)
        if num_items > MAX_ITEMS:
            raise BaselineUnavailable(
                f"ease inverts a matrix of items x items: at most {MAX_ITEMS:,} items, and this log has {num_items:,}."
            )
        had = training_matrix(dataset, split)
        together = (had.T @ had).toarray().astype(np.float64)

        def with_lambda(regularisation: float) -> ScoredItems:
            votes = _votes(together, regularisation=regularisation)

            def score(requests: Requests) -> Float32Array:
                return np.asarray(interaction_matrix(requests.histories, num_items=num_items) @ votes)

            return scored_or_popular(score, dataset, split)

        return choose(LAMBDAS, with_lambda, dataset, split, name=self.name, budget=budget)


def _votes(together: Float64Array, *, regularisation: float) -> Float32Array:
    """B (items, items) from X'X."""
    from scipy.linalg.lapack import dpotrf, dpotri

    regular = together.copy(order="F")
    regular[np.diag_indices_from(regular)] += regularisation
    factor, _ = dpotrf(regular, lower=True, overwrite_a=True)
    inverse, _ = dpotri(factor, lower=True, overwrite_c=True)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    votes: Float32Array = (-inverse / np.diag(inverse)).astype(np.float32)
    np.fill_diagonal(votes, 0.0)
    return votes
