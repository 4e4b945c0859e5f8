"""Networks that encode a history as one vector: an item's score is its inner product with the item's vector.

What they share: item vectors, which are read as history and as candidates, a full or a sampled softmax over the
targets, and how histories are read. A causal encoder learns from every position of a window at once; any other one
reads a history for each target.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from beamtree.baselines.neural.learning import learn
from beamtree.baselines.neural.recipe import NetworkSettings
from beamtree.baselines.neural.task import Task, parts_of, svd_vectors, warm_start_of
from beamtree.baselines.popularity import scored_or_popular
from beamtree.baselines.protocol import Budget
from beamtree.config import EncoderRecipe, EstimatorSettings
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.evaluation.answers import ScoredItems
from beamtree.fitting.computation import learning_device
from beamtree.model.embedding_init import start_near
from beamtree.model.estimator import Estimator
from beamtree.model.item_softmax import WeighedTargets, item_softmax_loss, look_up
from beamtree.model.next_item import HISTORIES_AT_A_TIME
from beamtree.model.packing import Packing
from beamtree.model.proposal import Proposal
from beamtree.model.sequence_encoder import Dropout, SequenceEncoder, drop_out, initialise, keep
from beamtree.training.instances import Batch, TrainingInstances
from beamtree.training.module_learner import BatchPart, ModuleLearner
from beamtree.training.randomness import torch_generator
from beamtree.training.trainer import Instances
from beamtree.training.windows import TrainingWindows, WindowBatch
from beamtree.types import Float32Array, Int32Array, Int64Array


class Encoder(Protocol):
    """What makes a vector of a history, a module."""

    def expectation(self, vectors: Tensor, *, present: Tensor, dropout: Dropout) -> Tensor:
        """As `SequenceEncoder.expectation`."""


@dataclass(frozen=True, kw_only=True)
class QuerySettings(NetworkSettings):
    """What all these networks have. negatives: as estimator.negatives; dropout: share, while training."""

    negatives: int | Literal["auto"]
    dropout: float = 0.0

    def negatives_of(self, num_items: int) -> int | None:
        """Sampled-softmax negatives per step; None: all items are scored."""
        return EstimatorSettings(recipe=EncoderRecipe(negatives=self.negatives)).negatives_of(num_items)


class QueryModel(nn.Module):
    """Item vectors and an encoder; an `InnerProductEstimator`."""

    def __init__(
        self,
        encoder: Encoder,
        settings: QuerySettings,
        *,
        num_items: int,
        history_length: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.history_length = history_length
        self.items = nn.Parameter(torch.empty(num_items, settings.width))
        self.encoder = encoder
        self.negatives = settings.negatives_of(num_items)
        self._dropout_share = settings.dropout
        initialise(self, generator)

    def dropout(self, generator: torch.Generator) -> Dropout:
        """While training."""
        share = self._dropout_share
        return partial(drop_out, share=share, generator=generator) if self.training and share > 0.0 else keep

    @torch.no_grad()
    def scores(self, histories: Int32Array) -> Float32Array:
        """(histories, items) for histories (histories, positions), oldest first, -1 in front."""
        return self.expectations(histories) @ self.item_vectors().T

    @torch.no_grad()
    def expectations(self, histories: Int32Array) -> Float32Array:
        """The vectors (histories, width) of histories as in `scores`."""
        found = np.empty((len(histories), self.items.shape[1]), dtype=np.float32)
        for first in range(0, len(histories), HISTORIES_AT_A_TIME):
            rows = slice(first, first + HISTORIES_AT_A_TIME)
            latest = np.ascontiguousarray(histories[rows, -self.history_length :])
            read = torch.from_numpy(latest).to(self.items.device, torch.int64)
            encoded = self.encoder.expectation(look_up(read, self.items), present=read >= 0, dropout=keep)
            found[rows] = encoded.cpu().numpy()
        return found

    def item_vectors(self) -> Float32Array:
        """(items, width)."""
        vectors: Float32Array = self.items.detach().cpu().numpy()
        return vectors


@dataclass(frozen=True)
class Reading:
    """How a network reads the training spans.

    instances: from a dataset, a split, the length of a history and the recipe's horizon; counts: how often each item is
    a target of them; loss: of a model on one of their batches; divide: a batch into a number of parts.
    """

    instances: Callable[..., Instances]
    counts: Callable[[Any, int], Int64Array]
    loss: Callable[[QueryModel, Any, Proposal, torch.Generator], Tensor]
    divide: Callable[[Any, torch.device], Sequence[BatchPart]]


def learn_queries(
    settings: QuerySettings,
    make_encoder: Callable[[int], Encoder],
    reading: Reading,
    dataset: Dataset,
    split: Split,
    *,
    budget: Budget,
) -> Task[QueryModel]:
    """A model with its encoder learned, or found; make_encoder: from the length of the histories that are read."""
    recipe, config, num_items = settings.recipe, budget.config, len(dataset.items)
    device, length = learning_device(config), recipe.read_length(config)
    instances = reading.instances(dataset, split, length=length, horizon=recipe.horizon(seed=budget.seed))
    proposal = Proposal.half_by_frequency(reading.counts(instances, num_items))
    vectors = svd_vectors(dataset, split, width=settings.width, seed=budget.seed)

    def make() -> Task[QueryModel]:
        generator = torch_generator(budget.seed, "weights", device=torch.device("cpu"))
        encoder = make_encoder(length)
        model = QueryModel(encoder, settings, num_items=num_items, history_length=length, generator=generator)
        model.to(device)
        return Task(
            model,
            instances,
            make_learner=lambda: ModuleLearner(
                model,
                loss=lambda model, batch, generator: reading.loss(model, batch, proposal, generator),
                seed=budget.seed,
                tables=() if model.negatives is None else ("items",),
                divide=lambda batch: reading.divide(batch, device),
            ),
            answers=lambda: answers_of(model, dataset, split),
            warm_start=warm_start_of(recipe, partial(start_near, model.items), vectors),
        )

    return learn(settings, make, dataset, split, budget=budget)


def answers_of(model: Estimator, dataset: Dataset, split: Split) -> ScoredItems:
    """Answers of a model; popular items where the history is empty."""

    def score(requests: Requests) -> Float32Array:
        return model.scores(requests.histories.latest(model.history_length))

    return scored_or_popular(score, dataset, split)


def _prefix_instances(dataset: Dataset, split: Split, **reading: Any) -> TrainingInstances:
    return TrainingInstances(dataset.sequences, split.train, split.first_target, horizon=reading["horizon"])


def _prefix_counts(instances: TrainingInstances, num_items: int) -> Int64Array:
    return np.bincount(instances.targets(), minlength=num_items)


def _prefix_loss(model: QueryModel, batch: Batch, proposal: Proposal, generator: torch.Generator) -> Tensor:
    histories = batch.histories.latest(model.history_length)
    present = torch.from_numpy(histories >= 0).to(model.items.device)
    return item_softmax_loss(
        model.items,
        histories,
        batch.targets if batch.shares is None else WeighedTargets(batch.targets, batch.shares),
        encode=partial(model.encoder.expectation, present=present, dropout=model.dropout(generator)),
        negatives=model.negatives,
        proposal=proposal,
        generator=generator,
    )


def _divide_rows(batch: Batch, device: torch.device) -> list[BatchPart]:
    """A batch of histories in parts of nearly one size."""
    parts = parts_of(len(batch), device=device)
    found = []
    for number in range(parts):
        rows = np.arange(number, len(batch), parts)
        weights = None if batch.target_weights is None else batch.target_weights[rows]
        part = Batch(batch.histories.take(rows), batch.targets[rows], target_weights=weights)
        found.append(BatchPart(part, len(rows) / len(batch)))
    return found


def _window_instances(dataset: Dataset, split: Split, **reading: Any) -> TrainingWindows:
    return TrainingWindows.cut(dataset.sequences, split, **reading)


def _window_loss(model: QueryModel, batch: WindowBatch, proposal: Proposal, generator: torch.Generator) -> Tensor:
    assert isinstance(model.encoder, SequenceEncoder)
    packing = Packing(batch.lengths, device=model.items.device)
    return item_softmax_loss(
        model.items,
        batch.inputs,
        batch.labels,
        encode=partial(model.encoder.packed, packing=packing, dropout=model.dropout(generator)),
        negatives=model.negatives,
        proposal=proposal,
        generator=generator,
    )


def _divide_windows(batch: WindowBatch, device: torch.device) -> list[BatchPart]:
    parts = batch.divided(parts_of(len(batch.inputs), device=device))
    return [BatchPart(part, len(part.inputs) / len(batch.inputs)) for part in parts]


EACH_HISTORY = Reading(_prefix_instances, _prefix_counts, _prefix_loss, _divide_rows)
"""A history for each target."""

EVERY_POSITION = Reading(_window_instances, TrainingWindows.counts, _window_loss, _divide_windows)
"""Windows of the training spans, with targets after every position; for a causal encoder."""
