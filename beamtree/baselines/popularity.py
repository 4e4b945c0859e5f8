"""The items with most training interactions: the same for all users, except for filters."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.evaluation.answers import ScoredItems, empty_result
from beamtree.model.counting import count_items
from beamtree.retrieval.result import SearchResult
from beamtree.types import Float32Array, Int64Array


@dataclass(frozen=True, eq=False)
class PopularItems:
    """Items ranked by their counts (items,), the lower item first among equals."""

    counts: Int64Array
    ranking: Int64Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranking", np.argsort(-self.counts, kind="stable"))

    def search(self, requests: Requests, *, k: int) -> SearchResult:
        """The k most frequent eligible items of each request; the score is the count."""
        result = empty_result(len(requests), k=k)
        ranking = self.ranking if requests.allowed is None else self.ranking[requests.allowed[self.ranking]]
        for row in range(len(requests)):
            best = ranking[:k]
            if requests.excluded is not None:
                excluded = requests.excluded.of(row)
                candidates = ranking[: k + len(excluded)]
                best = candidates[~np.isin(candidates, excluded)][:k]
            result.items[row, : len(best)] = best
            result.scores[row, : len(best)] = self.counts[best]
        return result

    def below_zero(self) -> Float32Array:
        """Scores (items,) from -1 to 0 in the same order: for items that a baseline cannot score."""
        return (-1.0 / (1.0 + self.counts)).astype(np.float32)


class Popularity:
    """Training interactions, counted."""

    name = "popularity"

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> PopularItems:  # noqa: ARG002
        """As `Baseline.fit`."""
        return popular_items(dataset, split)


def popular_items(dataset: Dataset, split: Split) -> PopularItems:
    """Items ranked by their interactions inside the training spans."""
    sequences = dataset.sequences
    return PopularItems(
        count_items(sequences.items, split.train, num_items=len(dataset.items), weights=sequences.weights)
    )


def scored_or_popular(score: Callable[[Requests], Float32Array], dataset: Dataset, split: Split) -> ScoredItems:
    """Answers by scores as in `ScoredItems`; popular items where the history is empty."""
    counts = popular_items(dataset, split).counts.astype(np.float32)

    def filled(requests: Requests) -> Float32Array:
        scores = score(requests)
        scores[requests.histories.lengths == 0] = counts
        return scores

    return ScoredItems(filled, num_items=len(counts))
