"""Measured lines on disk: JSON, one line each.

A run appends its lines. When a run is done again, the lines that it replaces are not lost: what they measured on the
validation users goes to the trials, with a note, and what they measured on the test users is dropped.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from beamtree.config import Config
from beamtree.errors import DataError, SettingsError
from beamtree.storage import replace_text
from experiments.decisive import decisive_settings
from experiments.experiment import Experiment

Line = dict[str, Any]

BEFORE = "before:"
"""How the note begins of a line that stood on the page of results until its run was done again."""


def append_lines(file: Path, lines: Sequence[Line]) -> None:
    """Append all lines of a run in one write that is on the disk when this returns."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with os.fdopen(descriptor, "wb", buffering=0) as stream:
        stream.write(text.encode())
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


def replace_run(runs: Path, trials: Path, lines: Sequence[Line], *, why: str) -> int:
    """Append the lines of a run that is not a trial, and retire those of the same run; how many were retired.

    why: what sets the retired ones apart, for their note.
    """
    name = _run_of(lines[-1])
    standing = read_lines(runs)
    replaced = [line for line in standing if _run_of(line) == name]
    note = f"{BEFORE} {lines[-1]['role']} run, {why}"
    append_lines(trials, [line | {"role": "trial", "note": note} for line in replaced if line["split"] == "validation"])
    kept = [line for line in standing if _run_of(line) != name]
    replace_text(runs, "".join(json.dumps(line, allow_nan=False) + "\n" for line in [*kept, *lines]))
    return len(replaced)


def _run_of(line: Line) -> tuple[str, str, str, int]:
    return line["data"], line["system"], line["role"], line["seed"]


def standing_line(lines: Iterable[Line], experiment: Experiment, *, seed: int) -> Line | None:
    """The last line of the same run, if there is one.

    There is one test line for each data set, system, role and seed, whatever its settings; trials are told apart by
    their settings and by the study that they belong to.
    """
    is_trial = experiment.role == "trial"
    study = None if experiment.point is None else vars(experiment.point)
    found = None
    for line in lines:
        if not line["final"] or line["split"] != ("validation" if is_trial else "test"):
            continue
        same_run = _run_of(line) == (experiment.data.name, experiment.system, experiment.role, seed)
        if same_run and (not is_trial or (line["study"] == study and has_settings(line, experiment, seed=seed))):
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
