"""The user's most frequent items, then the most recent; filled up by popularity. For logs with repeats."""

import numpy as np

from beamtree.baselines.popularity import popular_items
from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.evaluation.answers import ScoredItems
from beamtree.types import Float32Array


class PersonalFrequency:
    """Items of the history by frequency, ties by recency."""

    name = "personal-frequency"

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> ScoredItems:  # noqa: ARG002
        """As `Baseline.fit`."""
        others = popular_items(dataset, split).below_zero()

        def score(requests: Requests) -> Float32Array:
            scores = np.tile(others, (len(requests), 1))
            for row in range(len(requests)):
                history = requests.histories.row(row)
                own, times = np.unique(history, return_counts=True)
                last = np.zeros(len(others), dtype=np.int64)
                last[history] = np.arange(len(history))
                scores[row, own] = times + last[own] / (len(history) + 1)
            return scores

        return ScoredItems(score, num_items=len(others))
