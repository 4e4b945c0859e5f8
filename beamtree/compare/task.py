"""One system, one seed, one log: what a process of its own is asked to fit and measure, and what it answers."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from beamtree.config import Config
from beamtree.storage import replace_text

RESULTS = "results"
WORK = "work"


@dataclass(frozen=True)
class Task:
    """log, items: as they were given. settings: all of them, as JSON. budget_seconds: for fitting."""

    system: str
    seed: int
    log: str
    items: str | None
    settings: dict[str, Any]
    budget_seconds: float
    cutoffs: tuple[int, ...]

    @property
    def config(self) -> Config:
        """The settings with this task's seed; who is held out does not depend on it."""
        settings = json.loads(json.dumps(self.settings))
        if settings["data"]["split_seed"] is None:
            settings["data"]["split_seed"] = settings["training"]["seed"]
        settings["training"]["seed"] = self.seed
        return Config.model_validate(settings)

    @property
    def name(self) -> str:
        """A file name for what belongs to it."""
        return f"{self.system}-seed{self.seed}"

    @property
    def key(self) -> str:
        """What has to be the same for a result to be used again."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:16]

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> "Task":
        """What `text` gave."""
        given = json.loads(text)
        return cls(**given | {"cutoffs": tuple(given["cutoffs"])})


def result_path(directory: Path, task: Task) -> Path:
    """Where the answer of a task is kept."""
    return directory / RESULTS / f"{task.name}.json"


def write_result(directory: Path, task: Task, result: dict[str, Any]) -> None:
    """Keep the answer of a task; at any instant the old or the new one is there."""
    path = result_path(directory, task)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps({"key": task.key, "system": task.system, "seed": task.seed, **result}) + "\n")


def read_result(directory: Path, task: Task) -> dict[str, Any] | None:
    """The answer of this very task, if there is one."""
    try:
        result: dict[str, Any] = json.loads(result_path(directory, task).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if result.get("key") == task.key else None
