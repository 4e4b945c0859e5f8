"""Measured lines on disk: JSON, one line each.

A run appends its lines. When a run is done again, the lines that it replaces are not lost: what they measured on the
validation users goes to the trials, with a note, and what they measured on the test users is dropped.
"""

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from beamtree.config import Config
from beamtree.errors import DataError, SettingsError
from beamtree.storage import replace_text
from beamtree.training.exclusive import exclusive
from experiments.decisive import decisive_settings
from experiments.experiment import Experiment

Line = dict[str, Any]

BEFORE = "before:"
"""How the note begins of a line that stood on the page of results until its run was done again."""


def append_lines(file: Path, lines: Sequence[Line]) -> None:
    """Append all lines of a run in one write that is on the disk when this returns."""
    with _alone(file):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        with os.fdopen(descriptor, "wb", buffering=0) as stream:
            stream.write(_as_text(lines).encode())
            os.fsync(stream.fileno())


def read_lines(file: Path) -> list[Line]:
    """All lines of a file, none where there is no file; DataError names a line that is not JSON."""
    if not file.is_file():
        return []
    lines: list[Line] = []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError as error:
            raise DataError(
                f"{file}, line {number} is not JSON ({error}). Remove it and run that experiment again."
            ) from error
    return lines


def replace_run(runs: Path, trials: Path, lines: Sequence[Line], *, why: str) -> None:
    """Append the lines of a run that is not a trial, and retire those of the same run to the trials.

    why: what sets the retired ones apart, for their note. What they measured on the test users is dropped.
    """
    name = _run_of(lines[-1])
    note = f"{BEFORE} {lines[-1]['role']} run, {why}"
    with _alone(runs):
        standing = read_lines(runs)
        retired = [line for line in standing if _run_of(line) == name and line["split"] == "validation"]
        append_lines(trials, [line | {"role": "trial", "note": note} for line in retired])
        kept = [line for line in standing if _run_of(line) != name]
        replace_text(runs, _as_text([*kept, *lines]))


def standing_since(runs: Path, line: Line) -> str:
    """When the run began that stands where a line's run would; empty where none does."""
    return max((known["started"] for known in read_lines(runs) if _run_of(known) == _run_of(line)), default="")


def is_replaced(line: Line) -> bool:
    """Whether a trial's line stood on the page of results once."""
    return str(line["note"]).startswith(BEFORE)


def _run_of(line: Line) -> tuple[str, str, str, int]:
    return line["data"], line["system"], line["role"], line["seed"]


def _as_text(lines: Sequence[Line]) -> str:
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)


def _alone(file: Path) -> AbstractContextManager[None]:
    """Inside, no other process writes to the file."""
    return exclusive(file.with_name(f".{file.name}.lock"), on_wait=lambda _: None, should_stop=lambda: False)


def standing_line(lines: Iterable[Line], experiment: Experiment, *, seed: int) -> Line | None:
    """The last line of the same run, if there is one.

    There is one test line for each data set, system, role and seed, whatever its settings; trials are told apart by
    their file, their settings and the study that they belong to.
    """
    is_trial = experiment.role == "trial"
    study = None if experiment.point is None else vars(experiment.point)
    found = None
    for line in lines:
        if not line["final"] or line["split"] != ("validation" if is_trial else "test"):
            continue
        same_run = _run_of(line) == (experiment.data.name, experiment.system, experiment.role, seed)
        same_trial = line["study"] == study and line["settings"]["file"] == experiment.file and not is_replaced(line)
        if same_run and (not is_trial or (same_trial and has_settings(line, experiment, seed=seed))):
            found = line
    return found


def has_settings(line: Line, experiment: Experiment, *, seed: int) -> bool:
    """Whether a line was measured with the settings of now; those that did not exist then are as they were."""
    recorded = line["settings"]
    try:
        config = Config.recorded(recorded["config"])
    except SettingsError:
        return False
    then, now = (
        decisive_settings(settings.model_dump(), system=experiment.system)
        for settings in (config, experiment.config(seed))
    )
    return then == now and recorded["data"] == vars(experiment.data)
