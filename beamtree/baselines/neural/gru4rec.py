"""GRU4Rec: gated recurrent layers over the history (Hidasi, Karatzoglou, Baltrunas, Tikk, ICLR 2016).

The DTR paper gives six layers of 64. Left open there, and taken here: the state is projected to the width of the item
vectors, which are shared by input and output; every position is learned from, with a softmax over all of up to 10,000
items and a sampled one above, instead of the negatives of session-parallel batches, which long histories do not need.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from beamtree.baselines.neural.query_model import (
    EVERY_POSITION,
    CausalEncoder,
    QueryModel,
    QuerySettings,
    learn_queries,
)
from beamtree.baselines.neural.recipe import AS_PUBLISHED, TUNED
from beamtree.baselines.neural.task import Task
from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.model.sequence_encoder import Dropout
from beamtree.types import Int64Array


@dataclass(frozen=True, kw_only=True)
class Gru4RecSettings(QuerySettings):
    """layers: recurrent ones, hidden: their width."""

    layers: int
    hidden: int


published = Gru4RecSettings(
    name="gru4rec-published", recipe=AS_PUBLISHED, width=24, layers=6, hidden=64, negatives="auto"
)
tuned = Gru4RecSettings(
    name="gru4rec", recipe=replace(TUNED, batch_size=32), width=64, layers=1, hidden=128, negatives="auto", dropout=0.2
)


class GruEncoder(CausalEncoder):
    """Recurrent layers, and a projection of their last state."""

    def __init__(self, width: int, *, hidden: int, layers: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, hidden, num_layers=layers, batch_first=True)
        self.project = nn.Linear(hidden, width)

    def encode(self, vectors: Tensor, *, present: Tensor, dropout: Dropout) -> Tensor:
        """As `Encoder.encode`; an empty history has the state 0."""
        rows, positions, _ = vectors.shape
        lengths = present.sum(dim=1)
        # A recurrent network would read padding in front, so histories are moved to where they begin at 0.
        places = torch.arange(positions, device=vectors.device) + (positions - lengths).unsqueeze(1)
        moved = vectors.gather(1, places.clamp(max=positions - 1).unsqueeze(-1).expand_as(vectors))
        states, _ = self.gru(dropout(moved))
        last = states[torch.arange(rows, device=vectors.device), (lengths - 1).clamp(min=0)]
        encoded: Tensor = self.project(dropout(last * (lengths > 0).unsqueeze(1)))
        return encoded

    def encode_everywhere(self, vectors: Tensor, *, lengths: Int64Array, dropout: Dropout) -> Tensor:
        """As `CausalEncoder.encode_everywhere`."""
        is_item = torch.from_numpy(np.arange(lengths.max()) < lengths[:, None]).to(vectors.device)
        padded = vectors.new_zeros((*is_item.shape, vectors.shape[1])).masked_scatter(is_item.unsqueeze(-1), vectors)
        states, _ = self.gru(dropout(padded))
        encoded: Tensor = self.project(dropout(states[is_item]))
        return encoded


def train(settings: Gru4RecSettings, dataset: Dataset, split: Split, *, budget: Budget) -> Task[QueryModel]:
    """The network, learned or found."""

    def make_encoder(_history_length: int) -> GruEncoder:
        return GruEncoder(settings.width, hidden=settings.hidden, layers=settings.layers)

    return learn_queries(settings, make_encoder, EVERY_POSITION, dataset, split, budget=budget)
