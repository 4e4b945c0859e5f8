"""GRU4Rec as published: gated recurrent layers over the history (Hidasi, Karatzoglou, Baltrunas, Tikk, ICLR 2016).

The DTR paper gives six layers of 64. Left open there, and taken here: the state is projected to the width of the item
vectors, which are shared by input and output; every position is learned from, with a softmax over all of up to 10,000
items and a sampled one above, instead of the negatives of session-parallel batches, which long histories do not need.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from beamtree.baselines.neural.query_model import EVERY_POSITION, QueryModel, QuerySettings, learn_queries
from beamtree.baselines.neural.recipe import AS_PUBLISHED
from beamtree.baselines.neural.task import Task
from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.model.recurrent import Recurrent
from beamtree.model.sequence_encoder import Dropout


@dataclass(frozen=True, kw_only=True)
class Gru4RecSettings(QuerySettings):
    """layers: recurrent ones, hidden: their width."""

    layers: int
    hidden: int


published = Gru4RecSettings(
    name="gru4rec-published", recipe=AS_PUBLISHED, width=24, layers=6, hidden=64, negatives="auto"
)


class GruEncoder(Recurrent):
    """Recurrent layers, and a projection of their last state: no norms, and nothing of the latest item itself."""

    def __init__(self, width: int, *, hidden: int, layers: int, history_length: int) -> None:
        super().__init__(width, hidden=hidden, layers=layers, history_length=history_length)
        self.input_norm, self.final_norm = nn.Identity(), nn.Identity()

    def encoded(self, latest: Tensor, states: Tensor, *, dropout: Dropout) -> Tensor:
        """As `Recurrent.encoded`."""
        return super().encoded(torch.zeros_like(latest), states, dropout=dropout)


def train(settings: Gru4RecSettings, dataset: Dataset, split: Split, *, budget: Budget) -> Task[QueryModel]:
    """The network, learned or found."""

    def make_encoder(history_length: int) -> GruEncoder:
        return GruEncoder(settings.width, hidden=settings.hidden, layers=settings.layers, history_length=history_length)

    return learn_queries(settings, make_encoder, EVERY_POSITION, dataset, split, budget=budget)
