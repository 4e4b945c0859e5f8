"""Item-to-item co-occurrence: items scored by how often they followed those of the history.

score(item) = sum over the latest HISTORY_LENGTH items h of FADE^age * ln(1 + how often item followed h)
"""

from dataclasses import dataclass

import numpy as np

from beamtree.baselines.popularity import popular_items
from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.evaluation.answers import ScoredItems
from beamtree.model.counting import CountedPairs, count_followers
from beamtree.types import Float32Array

WINDOW = 20
"""Number of interactions after an item that count as followers."""
HISTORY_LENGTH = 20
FADE = 0.8
"""Weight of an item of the history against the one after it."""
MAX_PAIRS = 40_000_000
"""Lists are cut only where all of them together could hold more: 320 MB. Up to 6,300 items they never are."""
MIN_FOLLOWERS = 100


@dataclass(frozen=True, eq=False)
class TransitionScores:
    """Scores of followers of histories. followers: the counts; strengths: ln(1 + count), aligned with them."""

    followers: CountedPairs
    strengths: Float32Array

    def __call__(self, requests: Requests) -> Float32Array:
        """(requests, items), 0 where nothing of the history was ever followed by an item."""
        offsets, items, _ = self.followers
        scores = np.zeros((len(requests), len(offsets) - 1), dtype=np.float32)
        for row in range(len(requests)):
            latest = requests.histories.row(row)[-HISTORY_LENGTH:][::-1]
            for age, item in enumerate(latest):
                followers = slice(offsets[item], offsets[item + 1])
                scores[row, items[followers]] += np.float32(FADE**age) * self.strengths[followers]
        return scores


def count_transitions(dataset: Dataset, split: Split) -> TransitionScores:
    """Count followers inside the training spans; an item does not follow itself."""
    num_items = len(dataset.items)
    most = min(num_items, max(MIN_FOLLOWERS, MAX_PAIRS // num_items))
    sequences = dataset.sequences
    followers = count_followers(
        sequences.items, split.train, num_items=num_items, window=WINDOW, most=most, weights=sequences.weights
    )
    return TransitionScores(followers, np.log1p(followers.counts).astype(np.float32))


class ItemToItem:
    """Followers of the items of the history; popular items if there are none."""

    name = "item-to-item"

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> ScoredItems:  # noqa: ARG002
        """As `Baseline.fit`."""
        transitions, others = count_transitions(dataset, split), popular_items(dataset, split).below_zero()

        def score(requests: Requests) -> Float32Array:
            scores = transitions(requests)
            return np.where(scores > 0, scores, others)

        return ScoredItems(score, num_items=len(others))
