"""A training task: a fresh network, its instances, its learner, and the search over the result."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

import torch
from torch import nn

from beamtree.baselines.neural.recipe import Recipe
from beamtree.data.cooccurrence import cooccurrence_vectors
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.evaluation.answers import Answers
from beamtree.training.learner import Learner
from beamtree.training.randomness import numpy_generator
from beamtree.training.trainer import Instances
from beamtree.types import Float32Array

ROWS_OF_A_PART = 32
"""A batch is not divided between threads into parts smaller than this."""

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@dataclass(frozen=True)
class Task(Generic[ModuleT]):
    """A network and all that it takes to learn it.

    make_learner: of the network as it is. answers: what the network recommends as it is when this is called.
    warm_start: called before the first step of a training. max_validation_users: None = no limit.
    """

    module: ModuleT
    instances: Instances
    make_learner: Callable[[], Learner]
    answers: Callable[[], Answers]
    warm_start: Callable[[], None] = lambda: None
    max_validation_users: int | None = None


def svd_vectors(dataset: Dataset, split: Split, *, width: int, seed: int) -> Callable[[], Float32Array]:
    """A function that gives the items' unit vectors (items, width) by a truncated SVD, computed on its first call."""

    @cache
    def vectors() -> Float32Array:
        stream = numpy_generator(seed, "item vectors")
        num_items = len(dataset.items)
        return cooccurrence_vectors(dataset.sequences, split.train, num_items=num_items, size=width, generator=stream)

    return vectors


def warm_start_of(
    recipe: Recipe, start: Callable[[Float32Array], None], vectors: Callable[[], Float32Array]
) -> Callable[[], None]:
    """What moves a network to where the recipe has it start. start: moves it to the items' vectors."""
    return (lambda: start(vectors())) if recipe.embedding_init == "svd" else (lambda: None)


def parts_of(rows: int, *, device: torch.device) -> int:
    """The number of parts of a batch of the given rows: at most the number of torch threads."""
    return min(torch.get_num_threads(), max(1, rows // ROWS_OF_A_PART)) if device.type == "cpu" else 1
