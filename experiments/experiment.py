"""An experiment, read from a TOML file: a data set, a system, a role, and the settings it is run with.

    extends = "faithful-ml-1m.toml"      # optional: another file of the same folder, whose values this one overrides
    role = "faithful"                    # faithful: as the paper has it; best: as good as we can; trial: never tested
    system = "dtr-t"                     # dtr-u, dtr-t, dtr-t-rl, or a baseline by name
    preset = "default"                   # where the settings start from
    note = "longer warm-up"              # optional: what a trial tries, for its row of the report

    [data]                               # paths below the folder that holds the data sets
    name = "ml-1m"
    log = "ml-1m/interactions.parquet"
    items = "ml-1m/items.parquet"        # optional

    [config.training]                    # any section of beamtree's own settings
    rounds = 3

    [study]                              # optional: one run for each point, with the systems named; trials only
    name = "negatives"
    systems = ["dtr-u", "dtr-t"]
    points = [{value = 10, training.negatives = 10}, {value = 30, training.negatives = 30}]

Who is held out depends on `config.data.split_seed` (here 0) and not on the seed of a run: a test user of one run is
never a validation user of another.
"""

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from beamtree.baselines.registry import BASELINES
from beamtree.config import Config, PresetName
from beamtree.errors import InputError, SettingsError

Role = Literal["faithful", "best", "trial"]
TREE_SYSTEMS = ("dtr-u", "dtr-t", "dtr-t-rl")
SYSTEM_CHOICES = (*TREE_SYSTEMS, *BASELINES)

KEYS = {"extends", "role", "system", "preset", "note", "data", "config", "study", "exact_users"}
DATA_KEYS = {"name", "log", "items"}
STUDY_KEYS = {"name", "systems", "points"}
DATA_VARIABLE = "BEAMTREE_DATA"

ASKED_OF_ALL: Mapping[str, Any] = {
    "data": {"split_seed": 0, "min_interactions": 15, "min_held_out": 1, "shuffle_ties": False},
    "model": {"parts": ["attention"]},
    "estimator": {"history_length": 20},
    "retrieval": {"exclude_seen": True},
}
"""Every run answers the same questions unless its file says otherwise, whatever its log would decide."""


@dataclass(frozen=True)
class DataSource:
    """A data set by name, and where its files are below the data folder."""

    name: str
    log: str
    items: str | None = None


@dataclass(frozen=True)
class StudyPoint:
    """One value of what a study varies."""

    study: str
    value: float


@dataclass(frozen=True)
class Experiment:
    """One run with one seed still to be chosen.

    exact_users: so many held-out users are also asked by an exact scan of the same model.
    """

    file: str
    role: Role
    system: str
    data: DataSource
    preset: PresetName
    overrides: Mapping[str, Any] = field(hash=False)
    note: str = ""
    point: StudyPoint | None = None
    exact_users: int = 1000

    def config(self, seed: int) -> Config:
        """All settings of the run; SettingsError lists what is wrong with them."""
        own: dict[str, Any] = {"seed": seed}
        if self.system in TREE_SYSTEMS:
            own["method"] = self.system
        sections = _over(ASKED_OF_ALL, _over(self.overrides, {"training": own}))
        return Config.preset(self.preset, **sections)

    def name(self, seed: int) -> str:
        """A name for files of the run: readable, and different for different settings."""
        text = json.dumps([self.config(seed).model_dump(mode="json"), vars(self.data)], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:10]
        return f"{self.data.name}-{self.system}-{self.role}-seed{seed}-{key}"

    def title(self, seed: int) -> str:
        """What a person calls the run."""
        point = "" if self.point is None else f", {self.point.study} = {self.point.value:g}"
        return f"{self.file}: {self.system} on {self.data.name}, {self.role}, seed {seed}{point}"


def read_experiments(file: Path) -> list[Experiment]:
    """The experiments of a settings file: one, or one for each system and point of its study."""
    raw = _read(file, ())
    _refuse_unknown(raw, KEYS, f"{file}")
    for name in ("role", "data"):
        if name not in raw:
            raise SettingsError(f"{file} does not say `{name}`; neither does a file that it extends.")
    study = raw.get("study")
    systems: list[Any] = (study or {}).get("systems") or [raw.get("system")]
    for system in systems:
        _refuse_other(system, SYSTEM_CHOICES, f"{file}: system")
    _refuse_other(raw["role"], get_args(Role), f"{file}: role")
    _refuse_unknown(raw["data"], DATA_KEYS, f"{file}, [data]")
    try:
        source = DataSource(**raw["data"])
    except TypeError as error:
        raise SettingsError(f"{file}, [data] needs a name and a log: {error}.") from error
    experiments = [
        Experiment(
            file=file.name,
            role=raw["role"],
            system=system,
            data=source,
            preset=raw.get("preset", "default"),
            overrides=raw.get("config", {}),
            note=raw.get("note", ""),
            exact_users=raw.get("exact_users", 1000),
        )
        for system in systems
    ]
    if study is not None:
        experiments = [
            point for experiment in experiments for point in _points(experiment, study, where=f"{file}, [study]")
        ]
    for experiment in experiments:
        experiment.config(seed=0)
    return experiments


def data_folder() -> Path:
    """The folder that holds the data sets: named by BEAMTREE_DATA, else shared/data beside the checkout."""
    named = os.environ.get(DATA_VARIABLE)
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}. Name the one with the data sets in {DATA_VARIABLE}.")
    return folder


def _read(file: Path, readers: tuple[Path, ...]) -> dict[str, Any]:
    """The file's values over those of the file that it extends."""
    if file in readers:
        raise SettingsError(f"{file} extends itself by way of {', '.join(str(reader) for reader in readers)}.")
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"Cannot read the settings file {file}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not valid TOML: {error}.") from error
    if "extends" not in raw:
        return raw
    return _over(_read(file.parent / raw["extends"], (*readers, file)), raw)


def _over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are joined, anything else is replaced."""
    joined = dict(base)
    for name, value in own.items():
        both = isinstance(value, Mapping) and isinstance(joined.get(name), Mapping)
        joined[name] = _over(joined[name], value) if both else value
    return joined


def _points(experiment: Experiment, study: Mapping[str, Any], *, where: str) -> list[Experiment]:
    _refuse_unknown(study, STUDY_KEYS, where)
    if experiment.role != "trial":
        raise SettingsError(f"{where}: a study is made of trials, but role = '{experiment.role}'.")
    points = study.get("points", [])
    if not study.get("name") or not points or any("value" not in point for point in points):
        raise SettingsError(f"{where} needs a name, and points of the form {{value = 10, training.negatives = 10}}.")
    return [
        replace(
            experiment,
            point=StudyPoint(study["name"], point["value"]),
            overrides=_over(experiment.overrides, {name: part for name, part in point.items() if name != "value"}),
        )
        for point in points
    ]


def _refuse_unknown(table: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise SettingsError(f"{where}: {', '.join(unknown)} is unknown; known: {', '.join(sorted(known))}.")


def _refuse_other(value: Any, choices: tuple[str, ...], where: str) -> None:
    if value not in choices:
        raise SettingsError(f"{where} is one of {', '.join(choices)}; got {value!r}.")
