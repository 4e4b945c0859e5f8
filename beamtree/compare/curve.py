"""Learning curves as files: one line per point, appended during training, recovered after a crash."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beamtree.baselines.protocol import CurvePoint
from beamtree.compare.task import Task
from beamtree.storage import replace_text

CURVES = "curves"
Line = dict[str, Any]
_IDENTITY = ("learner", "round", "learning_rate", "instances", "is_round")


def curve_path(directory: Path, task: Task) -> Path:
    """The file of a task's curve."""
    return directory / CURVES / f"{task.name}.jsonl"


class CurveFile:
    """Appends points, each once.

    The first line identifies the task. A file of another task is overwritten, and a line cut off by a crash is
    dropped.
    seconds: asked for each point, what was spent until then.
    """

    def __init__(self, path: Path, task: Task, *, seconds: Callable[[], float]) -> None:
        self._path = path
        self._seconds = seconds
        header = {"key": task.key, "system": task.system, "label": task.title, "seed": task.seed}
        kept = _complete_lines(path)
        self._lines: list[Line] = kept if kept[:1] == [header] else [header]
        if len(self._lines) > 1:
            self._begin()
        else:
            path.unlink(missing_ok=True)

    def _begin(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(self._path, "".join(json.dumps(line) + "\n" for line in self._lines))

    def record(self, point: CurvePoint) -> None:
        """Append a point, unless it is there."""
        line = {
            "learner": point.learner,
            "round": point.round,
            "learning_rate": point.learning_rate,
            "instances": point.instances,
            "is_round": point.is_round,
            **{name: round(value, 5) for name, value in point.metrics.items() if name in ("f@20", "ndcg@20")},
            "seconds": round(self._seconds(), 1),
        }
        if any(all(kept.get(name) == line[name] for name in _IDENTITY) for kept in self._lines):
            return
        if len(self._lines) == 1:
            self._begin()
        self._lines.append(line)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")

    @property
    def instances(self) -> int:
        """What the finished rounds of all learners learned from."""
        by_learner = {line["learner"]: line["instances"] for line in self._lines[1:] if line["is_round"]}
        return sum(by_learner.values())


@dataclass(frozen=True)
class Curve:
    """A curve that was kept: of a label and a seed.

    points: validations in the order of instances, all learners in a row; rounds: what each round of the last learner
    ended with. A point has instances, seconds, f@20 and the round.
    """

    label: str
    system: str
    seed: int
    points: Sequence[Line]
    rounds: Sequence[Line]


def read_curves(directory: Path) -> list[Curve]:
    """All curves of a folder, finished or not; files of another version are skipped."""
    found = []
    for path in sorted((directory / CURVES).glob("*.jsonl")):
        lines = _complete_lines(path)
        if len(lines) > 1 and {"label", "system", "seed"} <= lines[0].keys():
            found.append(_curve(lines[0], lines[1:]))
    return found


def _curve(header: Line, lines: Sequence[Line]) -> Curve:
    points: list[Line] = []
    rounds: list[Line] = []
    before = 0
    for learner in dict.fromkeys(line["learner"] for line in lines):
        own = [line for line in lines if line["learner"] == learner]
        rate = _kept_rate(own)
        shifted = [{**line, "instances": before + line["instances"]} for line in own if line["learning_rate"] == rate]
        points += [line for line in shifted if not line["is_round"] and "f@20" in line]
        rounds = [line for line in shifted if line["is_round"] and "f@20" in line]
        before = max((line["instances"] for line in shifted), default=before)
    return Curve(header["label"], header["system"], header["seed"], points, rounds)


def _kept_rate(lines: Sequence[Line]) -> float:
    """The learning rate that the first round ended with; while it goes on, the one that is ahead."""
    ended = [line for line in lines if line["is_round"]]
    best = ended[0] if ended else max(lines, key=lambda line: line.get("f@20", 0.0))
    rate: float = best["learning_rate"]
    return rate


def _complete_lines(path: Path) -> list[Line]:
    """All lines but one that was cut off; none where there is no file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []
    lines = []
    for line in text.splitlines(keepends=True):
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
        if not line.endswith("\n"):
            break
    return lines
