"""Checkpoints: everything that a run needs to go on as if it had never stopped, byte for byte."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.config import Config
from beamtree.errors import ArtefactError
from beamtree.storage import MANIFEST, bundle_file, map_arrays, read_manifest, write_arrays, write_bundle
from beamtree.training.learner import Learner

KIND = "beamtree checkpoint"
FORMAT_VERSION = 2

Arrays = dict[str, npt.NDArray[Any]]


@dataclass
class Progress:
    """Where a run stands; small, exact, and all there is besides the arrays. seconds: spent so far, over all starts."""

    step: int = 0
    smoothed_loss: float | None = None
    lowest_loss: float | None = None
    best_step: int = 0
    best_score: float | None = None
    validations_since_best: int = 0
    validations: list[dict[str, float]] = field(default_factory=list)
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class RunIdentity:
    """What two runs must share for one to go on where the other stopped."""

    settings: dict[str, Any]
    data_fingerprint: str

    @classmethod
    def of(cls, config: Config, *, data_fingerprint: str) -> "RunIdentity":
        """Identity of a run with these settings on this data; how often checkpoints are written does not matter."""
        settings = config.model_dump(mode="json")
        del settings["training"]["checkpoint_minutes"]
        return cls(settings=settings, data_fingerprint=data_fingerprint)


def save_checkpoint(
    directory: Path,
    learner: Learner,
    *,
    best: Mapping[str, npt.NDArray[Any]],
    instances: Mapping[str, npt.NDArray[Any]],
    progress: Progress,
    identity: RunIdentity,
) -> None:
    """Write a checkpoint; the one before stays valid until this one is complete.

    best: the best weights so far; instances: what the training instances keep of themselves.
    """
    arrays = {f"model/{name}": array for name, array in learner.model_arrays().items()}
    arrays |= {f"optimiser/{name}": array for name, array in learner.optimiser_arrays().items()}
    arrays |= {f"best/{name}": array for name, array in best.items()}
    arrays |= {f"instances/{name}": array for name, array in instances.items()}
    manifest = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "progress": asdict(progress),
        "settings": identity.settings,
        "data_fingerprint": identity.data_fingerprint,
    }
    write_bundle(directory, manifest, files={"state.safetensors": write_arrays(arrays)})


def has_checkpoint(directory: Path) -> bool:
    """Whether a complete checkpoint lies in the folder."""
    return (directory / MANIFEST).is_file()


@dataclass(frozen=True)
class Restored:
    """What a checkpoint holds besides the learner's state."""

    progress: Progress
    best: Arrays
    instances: Arrays


def restore_checkpoint(directory: Path, learner: Learner, *, identity: RunIdentity) -> Restored:
    """Put the learner where the checkpoint was taken; gives all the rest that was saved with it."""
    manifest = read_manifest(directory)
    check_identity(directory, manifest, identity, kind=KIND, format_version=FORMAT_VERSION)
    arrays = map_arrays(bundle_file(directory, manifest, "state.safetensors"))
    learner.load_model_arrays(_below("model/", arrays))
    learner.restore_optimiser(_below("optimiser/", arrays))
    progress = Progress(**manifest["progress"])
    return Restored(progress, best=_below("best/", arrays), instances=_below("instances/", arrays))


def _below(prefix: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(prefix): np.array(array) for name, array in arrays.items() if name.startswith(prefix)}


def check_identity(
    directory: Path, manifest: Mapping[str, Any], identity: RunIdentity, *, kind: str, format_version: int
) -> None:
    """ArtefactError unless the manifest is of this kind and version, and of a run with these settings on this data."""
    if manifest.get("kind") != kind or manifest.get("format_version") != format_version:
        raise ArtefactError(
            f"{directory} holds {manifest.get('kind')!r}, format {manifest.get('format_version')!r}; expected "
            f"{kind!r}, format {format_version}. Start again without --resume."
        )
    if manifest["data_fingerprint"] != identity.data_fingerprint:
        raise ArtefactError(
            f"The checkpoint in {directory} was made from another log. "
            "Give the same log, or start again without --resume."
        )
    then, now = _flat(manifest["settings"]), _flat(identity.settings)
    changed = [f"{key}: {then.get(key)!r} then, {now.get(key)!r} now" for key in now if then.get(key) != now[key]]
    if changed:
        raise ArtefactError(
            f"The checkpoint in {directory} was made with other settings ({'; '.join(changed)}). "
            "Give the same settings, or start again without --resume."
        )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{section}.{key}": value for section, values in settings.items() for key, value in values.items()}
