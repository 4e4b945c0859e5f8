"""A cache of trained networks: one folder for each combination of data, split and settings, shared by runs.

Concurrent runs that need the same network train it once: the later one waits.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from torch import nn

from beamtree.config import EstimatorSettings
from beamtree.data.split import HeldOut, Split
from beamtree.training.checkpoint import (
    FORMAT_VERSION,
    Arrays,
    Checkpoint,
    Identity,
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from beamtree.training.exclusive import exclusive
from beamtree.training.module_arrays import load_module_arrays, module_arrays
from beamtree.types import AnyArray

KIND = "finished estimator"
LEARNING_VERSION = 6
"""Version of the training procedure: networks of other versions are not reused."""


@dataclass(frozen=True)
class EstimatorStore:
    """The folders of one network: of the finished one, and of the checkpoint of an unfinished training.

    All methods except `load` must be called inside `claimed`.
    """

    finished: Path
    unfinished: Path
    key: str

    @classmethod
    def at(cls, directory: Path, key: str, *, name: str = "encoder") -> Self:
        """The place of the estimator with this key; name: what its folders begin with."""
        return cls(directory / f"{name}-{key[:16]}", directory / f"{name}-{key[:16]}.unfinished", key)

    @property
    def identity(self) -> Identity:
        """The key: it covers everything that determines an estimator."""
        return Identity(self.key)

    @property
    def is_finished(self) -> bool:
        """Whether there is a trained estimator."""
        return has_checkpoint(self.finished)

    @contextmanager
    def claimed(self, *, on_wait: Callable[[str], None], should_stop: Callable[[], bool]) -> Iterator[None]:
        """Lock this estimator against other runs; after waiting for the lock, check first whether it is finished.

        on_wait: called once with a description of the holder if another run has the lock; should_stop: polled while
        waiting; True raises InterruptedTraining.
        """
        lock = self.finished.with_name(f"{self.finished.name}.lock")
        with exclusive(lock, on_wait=on_wait, should_stop=should_stop):
            yield

    def load(self, estimator: nn.Module) -> float | None:
        """Fill in the weights of the finished estimator; the seconds that it took to train, None if there is none."""
        kept = load_checkpoint(self.finished, kind=KIND, identity=self.identity)
        if kept is None:
            return None
        load_module_arrays(estimator, kept.group("model"))
        return float(kept.progress["seconds"])

    def optimiser(self) -> Arrays:
        """The optimiser's arrays of the finished estimator; empty where they were not kept."""
        kept = load_checkpoint(self.finished, kind=KIND, identity=self.identity)
        return {} if kept is None else kept.group("optimiser")

    def save(self, estimator: nn.Module, *, seconds: float, optimiser: Mapping[str, AnyArray] | None = None) -> None:
        """Save a finished estimator with its optimiser's arrays, and delete its checkpoint."""
        kept = Checkpoint({"seconds": seconds}, {"model": module_arrays(estimator), "optimiser": optimiser or {}})
        save_checkpoint(self.finished, kept, kind=KIND, identity=self.identity)
        shutil.rmtree(self.unfinished, ignore_errors=True)


def estimator_key(settings: EstimatorSettings, *, split: Split, validation_users: HeldOut, **rest: Any) -> str:
    """A hash of everything that determines an estimator: settings, training spans, validation users, and the rest."""
    described = settings.model_dump(mode="json")
    return learning_key(described, split=split, validation_users=validation_users, **rest)


def learning_key(settings: Mapping[str, Any], *, split: Split, validation_users: HeldOut, **rest: Any) -> str:
    """The same for a network with settings of its own, as JSON."""
    spans = hashlib.sha256()
    for part in (split.train, validation_users):
        for field in fields(part):
            spans.update(np.ascontiguousarray(getattr(part, field.name)).tobytes())
    described = {
        "versions": [FORMAT_VERSION, LEARNING_VERSION],
        "settings": settings,
        "spans": spans.hexdigest(),
        "first_target": split.first_target,
        **rest,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
