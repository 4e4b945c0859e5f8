"""YouTubeDNN: a perceptron over the mean of the history's vectors (Covington, Adams, Sargin, RecSys 2016).

The DTR paper gives the perceptron (128, 64, 24) and 1,000 negatives of a sampled softmax. Left open there, and taken
here: the softmax shares the item vectors of the history, as in public code; the last layer is linear, so that queries
may point anywhere; half of the negatives are drawn by frequency, half uniformly, and corrected for that.
"""

from dataclasses import dataclass
from itertools import pairwise

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
class YoutubeDnnSettings(QuerySettings):
    """layers: hidden widths of the perceptron."""

    layers: tuple[int, ...]


published = YoutubeDnnSettings(
    name="youtube-dnn-published", recipe=AS_PUBLISHED, width=24, layers=(128, 64), negatives=1000
)
tuned = YoutubeDnnSettings(name="youtube-dnn", recipe=TUNED, width=64, layers=(256, 128), negatives="auto", dropout=0.1)


class MeanEncoder(nn.Module):
    """The mean of the history, then linear layers with ReLU between them."""

    def __init__(self, width: int, *, layers: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*sizes) for sizes in pairwise((width, *layers, width)))

    def expectation(self, vectors: Tensor, *, present: Tensor, dropout: Dropout) -> Tensor:
        """As `Encoder.expectation`."""
        total = (vectors * present.unsqueeze(-1)).sum(dim=1)
        hidden = dropout(total / present.sum(dim=1, keepdim=True).clamp(min=1))
        for layer in self.layers[:-1]:
            hidden = dropout(functional.relu(layer(hidden)))
        encoded: Tensor = self.layers[-1](hidden)
        return encoded


def train(settings: YoutubeDnnSettings, dataset: Dataset, split: Split, *, budget: Budget) -> Task[QueryModel]:
    """The network, learned or found."""

    def make_encoder(_history_length: int) -> MeanEncoder:
        return MeanEncoder(settings.width, layers=settings.layers)

    return learn_queries(settings, make_encoder, EACH_HISTORY, dataset, split, budget=budget)
