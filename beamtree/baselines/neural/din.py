"""DIN: an attention network that scores each item for a history (Zhou et al., KDD 2018).

The network is that of Section 3 of the DTR paper on the leaves alone, without a tree: ten windows over 69 items, MLP
128-64-2, whose two outputs are the logits of not liking and liking, and 70 negatives. Left open there, and taken here:
history and candidates share the item vectors; negatives are drawn uniformly, and one that is a target of the same
history does not count; the published one is learned with binary cross-entropy, because it puts out a probability.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.baselines.neural.learning import learn
from beamtree.baselines.neural.query_model import answers_of, divide_rows
from beamtree.baselines.neural.recipe import AS_PUBLISHED, TUNED, Recipe
from beamtree.baselines.neural.task import Task, warm_start_of
from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.fitting.computation import learning_device
from beamtree.model.layers import AttentionUnit, Layers
from beamtree.model.scoring import FirstLayer, first_layer_in_blocks
from beamtree.model.sequence_encoder import initialise
from beamtree.training.instances import Batch, TrainingInstances
from beamtree.training.randomness import torch_generator
from beamtree.types import Float32Array, Int32Array

ITEMS_AT_A_TIME, ROWS_AT_A_TIME = 512, 8
"""Items and histories that are scored together: their intermediates stay in the cache."""
VALIDATION_SCORES = 20_000_000
"""A validation scores at most so many (users x items), but a hundred users in any case."""
IMPOSSIBLE = -1e4
"""The score of a negative that does not count."""

CandidateLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From scores of targets (rows, targets), which of them there are (rows, targets), and scores of negatives (rows,
negatives), `IMPOSSIBLE` where one does not count, to a scalar."""


def binary_cross_entropy(targets: Tensor, is_target: Tensor, negatives: Tensor) -> Tensor:
    """The mean over the candidates of the logistic loss of their labels, 1 and 0."""
    total = functional.softplus(-targets)[is_target].sum() + functional.softplus(negatives).sum()
    return total / (is_target.sum() + (negatives > IMPOSSIBLE).sum())


def softmax_cross_entropy(targets: Tensor, is_target: Tensor, negatives: Tensor) -> Tensor:
    """The mean over the histories of the cross-entropy of each target against the negatives."""
    against = torch.logaddexp(targets, negatives.logsumexp(dim=1, keepdim=True)) - targets
    return ((against * is_target).sum(dim=1) / is_target.sum(dim=1)).mean()


@dataclass(frozen=True, kw_only=True)
class DinSettings:
    """width: of an item's vector; windows: lengths, oldest first; layers: of the MLP, the two outputs included."""

    name: str
    recipe: Recipe
    width: int
    attention_hidden: int
    windows: tuple[int, ...]
    layers: tuple[int, ...]
    negatives: int
    loss: CandidateLoss


published = DinSettings(
    name="din-published",
    recipe=AS_PUBLISHED,
    width=24,
    attention_hidden=36,
    windows=(20, 20, 10, 10, 2, 2, 2, 1, 1, 1),
    layers=(128, 64, 2),
    negatives=70,
    loss=binary_cross_entropy,
)
tuned = replace(
    published,
    name="din",
    recipe=replace(TUNED, history_length=69, batch_size=100),
    attention_hidden=16,
    loss=softmax_cross_entropy,
)


class Din(nn.Module):
    """Item vectors, the attention unit and the MLP; a model that scores histories."""

    def __init__(
        self, settings: DinSettings, *, num_items: int, history_length: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.history_length = history_length
        self.windows = settings.windows
        self.items = nn.Parameter(torch.empty(num_items, settings.width))
        self.attention = AttentionUnit(settings.width, hidden=settings.attention_hidden)
        self.mlp = Layers([(len(settings.windows) + 1) * settings.width, *settings.layers])
        initialise(self, generator)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.endswith(("slope", "slopes")):
                    parameter.fill_(0.25)

    def candidate_scores(self, histories: Tensor, candidates: Tensor) -> Tensor:
        """Scores (rows, columns) of candidate vectors (rows, columns, width) for histories (rows, positions) of items,
        oldest first, -1 in front."""
        longest = max(1, int((histories >= 0).sum(dim=1).max()))
        read = histories[:, -longest:]
        first_layer = FirstLayer(self.attention, self.mlp.linear(0), _latest_windows(self.windows, longest))
        history = functional.embedding(read.clamp(min=0), self.items, sparse=True)
        hidden = first_layer_in_blocks(first_layer, history, candidates, present=read >= 0)
        for layer in range(1, len(self.mlp)):
            hidden = self.mlp.linear(layer)(functional.prelu(hidden, self.mlp.slopes[layer - 1]))
        return hidden[..., 1] - hidden[..., 0]

    @torch.no_grad()
    def scores(self, histories: Int32Array) -> Float32Array:
        """(histories, items) for histories (histories, positions), oldest first, -1 in front."""
        device = self.items.device
        scores = np.empty((len(histories), len(self.items)), dtype=np.float32)
        by_length = np.argsort((histories >= 0).sum(axis=1), kind="stable")
        for start in range(0, len(histories), ROWS_AT_A_TIME):
            rows = by_length[start : start + ROWS_AT_A_TIME]
            read = torch.from_numpy(histories[rows]).to(device, torch.int64)
            for first in range(0, len(self.items), ITEMS_AT_A_TIME):
                some = self.items[first : first + ITEMS_AT_A_TIME]
                found = self.candidate_scores(read, some.expand(len(rows), -1, -1))
                scores[rows, first : first + len(some)] = found.cpu().numpy()
        return scores

    def item_vectors(self) -> Float32Array:
        """(items, width)."""
        vectors: Float32Array = self.items.detach().cpu().numpy()
        return vectors


def train(settings: DinSettings, dataset: Dataset, split: Split, *, budget: Budget) -> Task[Din]:
    """The network, learned or found."""
    recipe, num_items, device = settings.recipe, len(dataset.items), learning_device(budget.config)
    horizon = recipe.horizon(seed=budget.seed)
    instances = TrainingInstances(dataset.sequences, split.train, split.first_target, horizon=horizon)
    warm_start = warm_start_of(recipe, dataset, split, seed=budget.seed)

    def make() -> Task[Din]:
        generator = torch_generator(budget.seed, "weights", device=torch.device("cpu"))
        model = Din(settings, num_items=num_items, history_length=sum(settings.windows), generator=generator)
        model.to(device)
        return Task(
            model,
            instances,
            loss=partial(_loss, negatives=settings.negatives, candidate_loss=settings.loss),
            answers=lambda: answers_of(model, dataset, split),
            warm_start=(lambda: None) if warm_start is None else lambda: warm_start(model.items),
            tables=("items",),
            divide=lambda batch: divide_rows(batch, device),
            max_validation_users=max(100, VALIDATION_SCORES // num_items),
        )

    return learn(settings, make, dataset, split, budget=budget)


def _loss(
    model: Din, batch: Batch, generator: torch.Generator, *, negatives: int, candidate_loss: CandidateLoss
) -> Tensor:
    device = model.items.device
    histories = torch.from_numpy(batch.histories.latest(model.history_length)).to(device, torch.int64)
    targets = torch.from_numpy(batch.targets).to(device, torch.int64)
    drawn = torch.randint(len(model.items), (len(targets), negatives), generator=generator, device=device)
    candidates = torch.cat([targets.clamp(min=0), drawn], dim=1)
    scores = model.candidate_scores(histories, functional.embedding(candidates, model.items, sparse=True))
    of_targets, of_drawn = scores.split([targets.shape[1], negatives], dim=1)
    is_wanted = (drawn.unsqueeze(2) == targets.unsqueeze(1)).any(dim=2)
    return candidate_loss(of_targets, targets >= 0, of_drawn.masked_fill(is_wanted, IMPOSSIBLE))


def _latest_windows(windows: tuple[int, ...], length: int) -> tuple[int, ...]:
    """The windows over the latest `length` positions alone; those further back are empty."""
    ends = np.cumsum(windows[::-1])
    return tuple(np.diff(np.minimum(ends, length), prepend=0)[::-1].tolist())
