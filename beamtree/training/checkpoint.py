"""Checkpoints: one format for everything that is kept between two starts of a run.

A checkpoint is a bundle of a manifest (kind, format version, identity, progress) and one file of arrays, whose names
begin with the group they belong to: `model/node_table`, `optimiser/...`. The learners, the state between two rounds and
the finished estimator are all kept so. The arrays and the manifest have checksums: what was altered is refused.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from beamtree.config import Config
from beamtree.errors import ArtefactError
from beamtree.storage import MANIFEST, read_arrays, read_manifest, write_arrays, write_bundle
from beamtree.types import AnyArray

FORMAT_VERSION = 4
ARRAYS_FILE = "state.safetensors"
ANEW = "--restart for a fit, no --resume for an update (resume=False in Python)"
"""How a run starts again, in messages."""
OWNER = "run"
"""The folder in which a work directory says whose checkpoints it keeps."""

Arrays = dict[str, AnyArray]


@dataclass(frozen=True)
class Identity:
    """What two runs must share for one to go on where the other stopped.

    key: fingerprint of the data, or of everything that decides what is kept. settings: section -> name -> value,
    compared one by one so that a refusal can name those that differ. features: digest of the features of users and
    contexts, empty where none are read.
    """

    key: str
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    features: str = ""

    @classmethod
    def of(
        cls, config: Config, *, data_fingerprint: str, features: str = "", strategies: Mapping[str, str] | None = None
    ) -> "Identity":
        """Identity of a run with these settings on this data; how often checkpoints are written does not matter.

        strategies: the names of those that the settings did not choose, by what they are for.
        """
        settings = config.model_dump(mode="json") | {"strategies": dict(strategies or {})}
        del settings["training"]["schedule"]["checkpoint_minutes"]
        return cls(key=data_fingerprint, settings=settings, features=features)


@dataclass(frozen=True)
class Checkpoint:
    """progress: small and exact, as JSON. arrays: by group, then by name; a group that is absent was empty."""

    progress: Mapping[str, Any]
    arrays: Mapping[str, Mapping[str, AnyArray]]

    def group(self, name: str) -> Arrays:
        """The arrays of a group."""
        return dict(self.arrays.get(name, {}))


def save_checkpoint(directory: Path, checkpoint: Checkpoint, *, kind: str, identity: Identity) -> None:
    """Write a checkpoint; the one before stays valid until this one is complete.

    kind: what is kept, such as "tree model"; only the same kind is loaded again.
    """
    flat = {f"{group}/{name}": array for group, arrays in checkpoint.arrays.items() for name, array in arrays.items()}
    manifest: dict[str, Any] = {
        "kind": _full_kind(kind),
        "format_version": FORMAT_VERSION,
        "identity": {"key": identity.key, "settings": identity.settings, "features": identity.features},
        "progress": checkpoint.progress,
    }
    manifest["sha256"] = _digest(manifest)
    write_bundle(directory, manifest, files={ARRAYS_FILE: write_arrays(flat)})


def load_checkpoint(directory: Path, *, kind: str, identity: Identity) -> Checkpoint | None:
    """What was saved last, None where nothing was.

    ArtefactError where it is damaged, of another kind or format, or of a run with another identity.
    """
    if not has_checkpoint(directory):
        return None
    manifest = read_manifest(directory)
    _check(directory, manifest, kind=kind, identity=identity)
    arrays: dict[str, Arrays] = {}
    for full_name, array in read_arrays(directory, manifest, ARRAYS_FILE).items():
        group, _, name = full_name.partition("/")
        arrays.setdefault(group, {})[name] = np.array(array)
    return Checkpoint(manifest["progress"], arrays)


def has_checkpoint(directory: Path) -> bool:
    """Whether a complete checkpoint lies in the folder."""
    return (directory / MANIFEST).is_file()


def forget_checkpoint(directory: Path) -> None:
    """Make a later resumption start from the beginning; what else lies in the folder stays."""
    (directory / MANIFEST).unlink(missing_ok=True)


def copied(arrays: Mapping[str, AnyArray]) -> Arrays:
    """The same arrays in memory of their own, which learning does not change."""
    return {name: array.copy() for name, array in arrays.items()}


def _full_kind(kind: str) -> str:
    return f"beamtree checkpoint: {kind}"


def _check(directory: Path, manifest: Mapping[str, Any], *, kind: str, identity: Identity) -> None:
    if manifest.get("kind") != _full_kind(kind) or manifest.get("format_version") != FORMAT_VERSION:
        raise ArtefactError(
            f"{directory} holds {manifest.get('kind')!r}, format {manifest.get('format_version')!r}; expected "
            f"{_full_kind(kind)!r}, format {FORMAT_VERSION}. Start again: {ANEW}."
        )
    if manifest.get("sha256") != _digest(manifest):
        raise ArtefactError(
            f"{directory / MANIFEST} is damaged: its checksum differs. Restore it, or start again: {ANEW}."
        )
    kept = manifest["identity"]
    if kept["key"] != identity.key:
        raise ArtefactError(
            f"The checkpoint in {directory} was made from another log. Give the same log, or start again: {ANEW}."
        )
    if kept.get("features", "") != identity.features:
        raise ArtefactError(
            f"The checkpoint in {directory} was made with other features of users or contexts. Give the same user "
            f"table (--users) and the same context columns, or start again: {ANEW}."
        )
    then, now = _flat(kept["settings"]), _flat(identity.settings)
    changed = [
        f"{name}: {then.get(name)!r} then, {now.get(name)!r} now"
        for name in dict.fromkeys([*now, *then])
        if then.get(name) != now.get(name)
    ]
    if changed:
        raise ArtefactError(
            f"The checkpoint in {directory} was made with other settings ({'; '.join(changed)}). "
            f"Give the same settings, or start again: {ANEW}."
        )


def _digest(manifest: Mapping[str, Any]) -> str:
    """Hex digest of the entries of a manifest that this file writes."""
    entries = [manifest.get(name) for name in ("kind", "format_version", "identity", "progress")]
    text = json.dumps(json.loads(json.dumps(entries)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _flat(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{section}.{name}": value for section, values in settings.items() for name, value in values.items()}
