"""FMLP-Rec: learnable filters over the frequencies of a history (Zhou, Yu, Zhao, Wen, WWW 2022).

The DTR paper gives four filter layers and a perceptron 24-128-24. A filter mixes all positions, so that each history is
encoded for its own targets. Left open there, and taken here: dropout of 0.5 as in the authors' code, and a softmax over
all of up to 10,000 items, a sampled one above, in the place of one negative for each target.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.baselines.neural.query_model import EACH_HISTORY, QueryModel, QuerySettings, learn_queries
from beamtree.baselines.neural.recipe import AS_PUBLISHED, TUNED
from beamtree.baselines.neural.task import Task
from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.model.sequence_encoder import Dropout


@dataclass(frozen=True, kw_only=True)
class FmlpRecSettings(QuerySettings):
    """layers: filter blocks; hidden: width of the perceptron in each of them."""

    layers: int
    hidden: int


published = FmlpRecSettings(
    name="fmlp-rec-published", recipe=AS_PUBLISHED, width=24, layers=4, hidden=128, negatives="auto", dropout=0.5
)
tuned = FmlpRecSettings(name="fmlp-rec", recipe=TUNED, width=64, layers=2, hidden=256, negatives="auto", dropout=0.2)


class FilterEncoder(nn.Module):
    """Places are added to the items, then come the filter blocks; the last position is what comes next."""

    def __init__(self, width: int, *, hidden: int, layers: int, history_length: int) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.empty(history_length, width))
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(
            FilterBlock(width, hidden=hidden, history_length=history_length) for _ in range(layers)
        )

    def expectation(self, vectors: Tensor, *, present: Tensor, dropout: Dropout) -> Tensor:
        """As `Encoder.expectation`."""
        hidden = dropout(self.norm(vectors * present.unsqueeze(-1) + self.places))
        for number, block in enumerate(self.blocks, start=1):
            hidden = block(hidden, last=1 if number == len(self.blocks) else hidden.shape[1], dropout=dropout)
        return hidden[:, -1]


class FilterBlock(nn.Module):
    """A filter over time, then a perceptron at each position; each is added to what came in and normalised."""

    def __init__(self, width: int, *, hidden: int, history_length: int) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.empty(2, history_length // 2 + 1, width))
        self.filter_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, hidden)
        self.narrow = nn.Linear(hidden, width)
        self.network_norm = nn.LayerNorm(width)

    def forward(self, hidden: Tensor, *, last: int, dropout: Dropout) -> Tensor:
        """The `last` positions (rows, last, width) from all (rows, positions, width)."""
        frequencies = torch.fft.rfft(hidden, dim=1, norm="ortho") * torch.complex(*self.filter)
        filtered = torch.fft.irfft(frequencies, n=hidden.shape[1], dim=1, norm="ortho")
        hidden = self.filter_norm(hidden[:, -last:] + dropout(filtered[:, -last:]))
        mixed: Tensor = self.network_norm(hidden + dropout(self.narrow(functional.gelu(self.widen(hidden)))))
        return mixed


def train(settings: FmlpRecSettings, dataset: Dataset, split: Split, *, budget: Budget) -> Task[QueryModel]:
    """The network, learned or found."""

    def make_encoder(history_length: int) -> FilterEncoder:
        return FilterEncoder(
            settings.width, hidden=settings.hidden, layers=settings.layers, history_length=history_length
        )

    return learn_queries(settings, make_encoder, EACH_HISTORY, dataset, split, budget=budget)
