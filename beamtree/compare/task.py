"""One system, one seed, one log: the task of a worker process, and its result."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from beamtree.config import Config
from beamtree.data.split import Fold
from beamtree.errors import InputError
from beamtree.storage import replace_text

RESULTS = "results"
WORK = "work"
SYSTEMS_MODULE = "beamtree.compare.systems"


@dataclass(frozen=True)
class Task:
    """log, items: as they were given. settings: all of them, as JSON. budget_seconds: for fitting; None = no limit.

    changes: what is different from the system as it is listed, by the names of its fields or those of its recipe, as
    JSON; label: what it is called then, None = as the system. systems_module: where `SYSTEMS` has it. fold: the users
    to test on; None = those that the settings hold out.
    """

    system: str
    seed: int
    log: str
    items: str | None
    settings: dict[str, Any]
    budget_seconds: float | None
    cutoffs: tuple[int, ...]
    label: str | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    systems_module: str = SYSTEMS_MODULE
    fold: Fold | None = None

    def __post_init__(self) -> None:
        if self.changes and self.label is None:
            raise ValueError(f"A {self.system} with changes {self.changes} needs a label of its own.")
        if self.fold is not None and self.settings["data"]["holdout"] != "users":
            holdout = self.settings["data"]["holdout"]
            raise InputError(f"Folds are over users, and data.holdout is {holdout!r}: leave one of the two out.")

    @property
    def config(self) -> Config:
        """The settings with this task's seed; the held-out users do not depend on it."""
        settings = json.loads(json.dumps(self.settings))
        if settings["data"]["split_seed"] is None:
            settings["data"]["split_seed"] = settings["training"]["seed"]
        settings["training"]["seed"] = self.seed
        return Config.model_validate(settings)

    @property
    def name(self) -> str:
        """A file name for its files."""
        return f"{re.sub(r'[^a-z0-9.]+', '-', self.title.lower())}-{self.repetition}"

    @property
    def repetition(self) -> str:
        """Its seed, and its fold where it has one: fits with the same one share what they train."""
        return f"seed{self.seed}" + ("" if self.fold is None else f"-fold{self.fold.number + 1}of{self.fold.folds}")

    @property
    def title(self) -> str:
        """Its display name."""
        return self.system if self.label is None else self.label

    @property
    def key(self) -> str:
        """A hash of everything that a result depends on."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:16]

    def text(self) -> str:
        """As JSON; fields that a plain system leaves at their defaults are not named."""
        given = asdict(self)
        plain: dict[str, Any] = {"label": None, "changes": {}, "systems_module": SYSTEMS_MODULE, "fold": None}
        kept = {name: value for name, value in given.items() if name not in plain or value != plain[name]}
        return json.dumps(kept, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> "Task":
        """What `text` gave."""
        given = json.loads(text)
        fold = {"fold": Fold(*given["fold"])} if "fold" in given else {}
        return cls(**given | {"cutoffs": tuple(given["cutoffs"])} | fold)


def result_path(directory: Path, task: Task) -> Path:
    """The file of a task's result."""
    return directory / RESULTS / f"{task.name}.json"


def read_results(directory: Path) -> list[dict[str, Any]]:
    """All results in a folder, in the order of their names."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted((directory / RESULTS).glob("*.json"))]


def write_result(directory: Path, task: Task, result: dict[str, Any]) -> None:
    """Store the result of a task atomically."""
    path = result_path(directory, task)
    path.parent.mkdir(parents=True, exist_ok=True)
    identity: dict[str, Any] = {"key": task.key, "system": task.system, "seed": task.seed}
    if task.label is not None:
        identity |= {"label": task.label, "changes": task.changes}
    if task.fold is not None:
        identity["fold"] = task.fold
    replace_text(path, json.dumps({**identity, **result}) + "\n")


def read_result(directory: Path, task: Task) -> dict[str, Any] | None:
    """The stored result of exactly this task, if there is one."""
    try:
        result: dict[str, Any] = json.loads(result_path(directory, task).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if result.get("key") == task.key else None
