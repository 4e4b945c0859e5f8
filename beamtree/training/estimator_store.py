"""Where estimators are kept: a folder for each combination of data, split and settings, so that runs can share one.

Runs that need the same one at the same time train it once: who comes later waits.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from beamtree.config import EstimatorSettings
from beamtree.data.split import HeldOut, Split
from beamtree.model.estimator import SasRec
from beamtree.storage import MANIFEST, bundle_file, map_arrays, read_manifest, write_arrays, write_bundle
from beamtree.training.exclusive import exclusive

KIND = "beamtree estimator"
FORMAT_VERSION = 3
"""Of the files and of the way of learning: what an earlier one gave is not found."""
WEIGHTS = "estimator.safetensors"
STATE = "state.safetensors"

Arrays = dict[str, npt.NDArray[Any]]


@dataclass
class EstimatorProgress:
    """Where the training of an estimator stands. loss: summed over the windows of the epoch under way."""

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    loss: float = 0.0
    best_score: float | None = None
    epochs_since_best: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class EstimatorStore:
    """One estimator's place: the finished one, and beside it the state of one that is still being trained.

    Everything but `load` belongs inside `claimed`.
    """

    finished: Path
    unfinished: Path
    key: str

    @classmethod
    def at(cls, directory: Path, key: str) -> Self:
        """The place of the estimator with this key."""
        return cls(directory / f"sasrec-{key[:16]}", directory / f"sasrec-{key[:16]}.unfinished", key)

    @property
    def is_finished(self) -> bool:
        """Whether there is a trained estimator."""
        return (self.finished / MANIFEST).is_file()

    @contextmanager
    def claimed(self, *, on_wait: Callable[[], None], should_stop: Callable[[], bool]) -> Iterator[None]:
        """Inside, no other run trains this estimator; whoever had to wait should look first whether it is finished.

        on_wait: called once if another run is inside; should_stop: asked while waiting, InterruptedTraining if so.
        """
        lock = self.finished.with_name(f"{self.finished.name}.lock")
        with exclusive(lock, on_wait=on_wait, should_stop=should_stop):
            yield
            if self.is_finished:  # nobody will train it again, so there is nothing left to guard
                lock.unlink(missing_ok=True)

    def load(self, estimator: SasRec) -> float | None:
        """Fill in the weights of the finished estimator; the seconds that it took to train, None if there is none."""
        if not self.is_finished:
            return None
        manifest = read_manifest(self.finished)
        load_arrays(estimator, map_arrays(bundle_file(self.finished, manifest, WEIGHTS)))
        return float(manifest["seconds"])

    def save(self, estimator: SasRec, *, seconds: float) -> None:
        """Keep a finished estimator, and forget how it came about."""
        manifest = {"kind": KIND, "format_version": FORMAT_VERSION, "key": self.key, "seconds": seconds}
        write_bundle(self.finished, manifest, files={WEIGHTS: write_arrays(estimator_arrays(estimator))})
        for path in self.unfinished.glob("*"):
            path.unlink(missing_ok=True)
        if self.unfinished.is_dir():
            self.unfinished.rmdir()

    def keep(
        self, estimator: SasRec, optimiser: torch.optim.Optimizer, *, best: Arrays, progress: EstimatorProgress
    ) -> None:
        """Write down everything that it takes to go on from here."""
        arrays = {f"model/{name}": array for name, array in estimator_arrays(estimator).items()}
        arrays |= {f"best/{name}": array for name, array in best.items()}
        for index, moments in optimiser.state_dict()["state"].items():
            arrays |= {f"optimiser/{index}/{name}": tensor.cpu().numpy() for name, tensor in moments.items()}
        manifest = {
            "kind": f"{KIND}, unfinished",
            "format_version": FORMAT_VERSION,
            "key": self.key,
            "progress": asdict(progress),
        }
        write_bundle(self.unfinished, manifest, files={STATE: write_arrays(arrays)})

    def restore(self, estimator: SasRec, optimiser: torch.optim.Optimizer) -> tuple[EstimatorProgress, Arrays] | None:
        """Put both where `keep` was called last; the progress and the best weights by then. None if it never was."""
        if not (self.unfinished / MANIFEST).is_file():
            return None
        manifest = read_manifest(self.unfinished)
        groups: dict[str, Arrays] = {"model": {}, "best": {}, "optimiser": {}}
        for name, array in map_arrays(bundle_file(self.unfinished, manifest, STATE)).items():
            group, _, rest = name.partition("/")
            groups[group][rest] = np.array(array)
        load_arrays(estimator, groups["model"])
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, array in groups["optimiser"].items():
            index, _, moment = name.partition("/")
            state.setdefault(int(index), {})[moment] = torch.from_numpy(array)
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
        return EstimatorProgress(**manifest["progress"]), groups["best"]


def estimator_key(settings: EstimatorSettings, *, split: Split, validation_users: HeldOut, **rest: Any) -> str:
    """A name for what decides an estimator: settings, training spans, the users it is validated on, and the rest."""
    spans = hashlib.sha256()
    for part in (split.train, validation_users):
        for field in fields(part):
            spans.update(np.ascontiguousarray(getattr(part, field.name)).tobytes())
    decisive = settings.model_dump(mode="json", exclude={"seed"})
    described = {"settings": decisive, "spans": spans.hexdigest(), "first_target": split.first_target, **rest}
    return hashlib.sha256(json.dumps({"format": FORMAT_VERSION, **described}, sort_keys=True).encode()).hexdigest()


def estimator_arrays(estimator: SasRec) -> Arrays:
    """Copies of all weights by name."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in estimator.state_dict().items()}


def load_arrays(estimator: SasRec, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Copy weights into an estimator of the same sizes."""
    estimator.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
