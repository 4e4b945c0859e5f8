"""iALS: matrix factorisation for implicit feedback (Hu, Koren, Volinsky, ICDM 2008). Needs the package implicit."""

from itertools import product

import numpy as np

from beamtree.baselines.interaction_matrix import interaction_matrix, training_matrix
from beamtree.baselines.popularity import scored_or_popular
from beamtree.baselines.protocol import Budget
from beamtree.baselines.tuning import choose
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.evaluation.answers import ScoredItems
from beamtree.types import Float32Array

FACTORS = (32, 64)
ALPHAS = (5.0, 1.0)
REGULARISATIONS = (3.0, 30.0)
"""Every combination is tried."""
ITERATIONS = 10


class Ials:
    """Inner products with the factors of the folded-in history; popular items if it is empty."""

    name = "ials"

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> ScoredItems:
        """As `Baseline.fit`."""
        from implicit.cpu.als import AlternatingLeastSquares
        from threadpoolctl import threadpool_limits

        had = training_matrix(dataset, split)

        def factorised(setting: tuple[int, float, float]) -> ScoredItems:
            factors, alpha, regularisation = setting
            with threadpool_limits(limits=1, user_api="blas"):  # implicit has threads of its own
                model = AlternatingLeastSquares(
                    factors=factors,
                    alpha=alpha,
                    regularization=regularisation,
                    iterations=ITERATIONS,
                    random_state=budget.seed,
                )
                model.fit(had, show_progress=False)

            def score(requests: Requests) -> Float32Array:
                asking = interaction_matrix(requests.histories, num_items=len(dataset.items))
                with threadpool_limits(limits=1, user_api="blas"):
                    folded_in = model.recalculate_user(np.arange(len(requests)), asking)
                scores: Float32Array = folded_in @ model.item_factors.T
                return scores

            return scored_or_popular(score, dataset, split)

        grid = product(FACTORS, ALPHAS, REGULARISATIONS)
        return choose(grid, factorised, dataset, split, name=self.name, budget=budget)
