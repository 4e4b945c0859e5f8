"""What a system hands over to be learned: a fresh network, its instances, its loss, and what it then answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from beamtree.baselines.neural.recipe import Recipe
from beamtree.data.cooccurrence import cooccurrence_vectors
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.evaluation.answers import ScoredItems
from beamtree.model.embedding_init import start_near
from beamtree.training.module_learner import BatchPart, ModuleLearner, undivided
from beamtree.training.randomness import numpy_generator
from beamtree.training.trainer import Instances

ROWS_OF_A_PART = 32
"""A batch is not divided between threads into parts smaller than this."""

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@dataclass(frozen=True)
class Task(Generic[ModuleT]):
    """A network and all that it takes to learn it.

    loss, tables, divide: as for `ModuleLearner`. answers: what the network recommends as it is when this is called.
    warm_start: called before the first step of a training. max_validation_users: None = no limit.
    """

    module: ModuleT
    instances: Instances
    loss: Callable[[ModuleT, Any, torch.Generator], Tensor]
    answers: Callable[[], ScoredItems]
    warm_start: Callable[[], None] = lambda: None
    tables: tuple[str, ...] = ()
    divide: Callable[[Any], Sequence[BatchPart]] = undivided
    max_validation_users: int | None = None

    def learner(self, *, seed: int) -> ModuleLearner[ModuleT]:
        """A learner of the network as it is now."""
        return ModuleLearner(self.module, loss=self.loss, seed=seed, tables=self.tables, divide=self.divide)


WarmStart = Callable[[Tensor], None]
"""Moves a table of random item vectors (items, width) to where they start."""


def warm_start_of(recipe: Recipe, dataset: Dataset, split: Split, *, seed: int) -> WarmStart | None:
    """The start that a recipe names, None = at random; vectors of one width are computed once."""

    @cache
    def vectors(size: int) -> Any:
        stream = numpy_generator(seed, "item vectors")
        num_items = len(dataset.items)
        return cooccurrence_vectors(dataset.sequences, split.train, num_items=num_items, size=size, generator=stream)

    def start(table: Tensor) -> None:
        start_near(table, vectors(table.shape[1]))

    return None if recipe.embedding_init == "random" else start


def parts_of(rows: int, *, device: torch.device) -> int:
    """How many parts a batch of so many rows is divided into: at most as many as torch uses threads now."""
    return min(torch.get_num_threads(), max(1, rows // ROWS_OF_A_PART)) if device.type == "cpu" else 1
