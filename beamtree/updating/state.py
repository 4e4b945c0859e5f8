"""What a model needs to go on learning, kept beside it: the log it has learned from, and its optimiser.

It lies beside the model and not in it, because it holds people's histories, which no server needs. Each state is named
by the log that it holds, so that a model finds the one it belongs to whatever was interrupted between the two.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl

from beamtree.data.columns import USER_ID
from beamtree.data.dataset import Dataset, Times
from beamtree.data.sequences import Sequences
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import ArtefactError, DataError
from beamtree.storage import MANIFEST, read_arrays, read_file, read_manifest, write_arrays, write_bundle
from beamtree.types import AnyArray

if TYPE_CHECKING:
    from beamtree.model.next_item import NextItemModel
    from beamtree.training.estimate import TrainedEstimator

KIND = "beamtree state for updates"
FORMAT_VERSION = 1
USERS_FILE, CONTEXT_FILE = "users.parquet", "context.parquet"
NAME_CHARACTERS = 16


@dataclass(frozen=True, eq=False)
class LearnedLog:
    """What a model has learned from: users by dense id, their sequences of dense items, and the times of these.

    user_table, context: as in `Dataset`.
    """

    users: Vocabulary
    sequences: Sequences
    timestamps: Times | None
    user_table: pl.DataFrame | None = None
    context: pl.DataFrame | None = None

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        """All of a data set that was learned from."""
        return cls(dataset.users, dataset.sequences, dataset.timestamps, dataset.user_table, dataset.context)

    @property
    def newest(self) -> float | None:
        """The latest time in it; None without times."""
        return None if self.timestamps is None or not len(self.timestamps) else self.timestamps.max().item()


@dataclass(frozen=True, eq=False)
class UpdateState:
    """The log and the optimiser's arrays by name; empty where the encoder was found trained, or there is none."""

    log: LearnedLog
    optimiser: Mapping[str, AnyArray] = field(default_factory=dict)


def state_of_fit(dataset: Dataset, encoders: "Sequence[TrainedEstimator[NextItemModel]]") -> UpdateState:
    """What a fit leaves for updates. encoders: the tower's, if there is one."""
    return UpdateState(LearnedLog.of(dataset), encoders[0].optimiser if encoders else {})


def states_beside(model: Path) -> Path:
    """The folder of the states of a model in a folder."""
    return model.with_name(f"{model.name}.state")


def save_state(model: Path, state: UpdateState, *, fingerprint: str) -> None:
    """Keep the state of a model that is about to be saved; those of its predecessors stay until `forget_others`."""
    log = state.log
    arrays: dict[str, AnyArray] = {"items": log.sequences.items, "offsets": log.sequences.offsets}
    if log.timestamps is not None:
        arrays["timestamps"] = log.timestamps
    if log.sequences.weights is not None:
        arrays["weights"] = log.sequences.weights
    arrays |= {f"optimiser/{name}": array for name, array in state.optimiser.items()}
    write_bundle(
        _place(model, fingerprint),
        {"kind": KIND, "format_version": FORMAT_VERSION, "data_fingerprint": fingerprint},
        files={
            "state.safetensors": write_arrays(arrays),
            **{name: partial(_write_table, table) for name, table in _tables(log).items()},
        },
    )


def _tables(log: LearnedLog) -> dict[str, pl.DataFrame]:
    """What a log has beside its arrays, by the name of the file."""
    users = log.users.ids.rename(USER_ID).to_frame() if log.user_table is None else log.user_table
    return {USERS_FILE: users} if log.context is None else {USERS_FILE: users, CONTEXT_FILE: log.context}


def _write_table(table: pl.DataFrame, path: Path) -> None:
    table.write_parquet(path)


def load_state(model: Path, *, fingerprint: str) -> UpdateState:
    """The state that belongs to a model; ArtefactError where it is missing or damaged."""
    place = _place(model, fingerprint)
    if not (place / MANIFEST).is_file():
        raise ArtefactError(
            f"{model} cannot be updated: the log that it has learned from is not kept in {states_beside(model)}. Fit "
            "the model again with beamtree fit, which keeps it, or copy that folder along with the model."
        )
    manifest = read_manifest(place)
    if manifest.get("kind") != KIND or manifest.get("format_version") != FORMAT_VERSION:
        raise ArtefactError(
            f"{place} holds {manifest.get('kind')!r}, format {manifest.get('format_version')!r}; expected {KIND!r}, "
            f"format {FORMAT_VERSION}. Fit the model again."
        )
    try:
        arrays = read_arrays(place, manifest, "state.safetensors")
        users = pl.read_parquet(read_file(place, manifest, USERS_FILE).tobytes())
        context = None
        if CONTEXT_FILE in manifest["files"]:
            context = pl.read_parquet(read_file(place, manifest, CONTEXT_FILE).tobytes())
        sequences = Sequences(arrays["items"], arrays["offsets"], arrays.get("weights"))
        log = LearnedLog(
            Vocabulary(users[USER_ID]),
            sequences,
            arrays.get("timestamps"),
            user_table=users if users.width > 1 else None,
            context=context,
        )
    except (KeyError, DataError, pl.exceptions.PolarsError) as error:
        raise ArtefactError(f"{place} cannot be used: {error}. Fit the model again.") from error
    is_aligned = log.timestamps is None or log.timestamps.shape == sequences.items.shape
    is_aligned &= context is None or context.height == len(sequences.items)
    if len(log.users) != len(sequences) or not is_aligned:
        raise ArtefactError(f"{place} does not fit together. Fit the model again.")
    optimiser = {
        name.removeprefix("optimiser/"): np.array(array)
        for name, array in arrays.items()
        if name.startswith("optimiser/")
    }
    return UpdateState(log, optimiser)


def forget_others(model: Path, *, fingerprint: str) -> None:
    """Remove the states of a model's predecessors, once it is saved."""
    kept = _place(model, fingerprint)
    for place in states_beside(model).glob("*"):
        if place != kept:
            shutil.rmtree(place, ignore_errors=True)


def copy_state(model: Path, target: Path, *, fingerprint: str) -> None:
    """Keep the state of a model beside another folder too, where there is one and the folder is another."""
    source = _place(model, fingerprint)
    if (source / MANIFEST).is_file() and source.absolute() != _place(target, fingerprint).absolute():
        save_state(target, load_state(model, fingerprint=fingerprint), fingerprint=fingerprint)


def _place(model: Path, fingerprint: str) -> Path:
    return states_beside(model) / fingerprint[:NAME_CHARACTERS]
