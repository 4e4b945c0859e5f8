"""SASRec and GRU4Rec, alone and with item-to-item counts: the encoders of the tower. Needs torch."""

from dataclasses import dataclass

import numpy as np

from beamtree.baselines.item_to_item import count_transitions
from beamtree.baselines.protocol import Budget
from beamtree.baselines.tuning import choose
from beamtree.config import EncoderKind
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.evaluation.answers import ScoredItems, scored_by
from beamtree.types import Float32Array

SHARES = (0.3, 0.0, 0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""What of the score is counted, to choose from."""


@dataclass(frozen=True)
class NextItem:
    """Every item scored by a sequence encoder, which is trained with the settings of the section `estimator`."""

    name: str
    encoder: EncoderKind

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> ScoredItems:
        """As `Baseline.fit`; loaded from the budget's directory if it was trained before."""
        from beamtree.baselines.encoder import trained_encoder

        trained = trained_encoder(self.encoder, dataset, split, budget=budget)
        return scored_by(trained, num_items=len(dataset.items))


@dataclass(frozen=True)
class WithItemToItem:
    """Weighted mean of an encoder's and item-to-item's scores, each standardised over the items per request."""

    learned: NextItem

    @property
    def name(self) -> str:
        """As in the registry."""
        return f"{self.learned.name}-item-to-item"

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> ScoredItems:
        """As `Baseline.fit`."""
        learned, counted = self.learned.fit(dataset, split, budget=budget).score, count_transitions(dataset, split)
        num_items = len(dataset.items)

        def mixed(share: float) -> ScoredItems:
            def score(requests: Requests) -> Float32Array:
                weights = np.float32(1 - share), np.float32(share)
                return weights[0] * _standardised(learned(requests)) + weights[1] * _standardised(counted(requests))

            return ScoredItems(score, num_items=num_items)

        return choose(SHARES, mixed, dataset, split, name=self.name, budget=budget)


SASREC = NextItem("sasrec", "self-attention")
GRU4REC = NextItem("gru4rec", "gru")


def _standardised(scores: Float32Array) -> Float32Array:
    """Rows with mean 0 and variance 1; a row of equal scores becomes 0."""
    centred = scores - scores.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    return np.asarray(np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0))
