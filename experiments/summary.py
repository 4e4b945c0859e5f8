"""From measured lines to the numbers of a table: the latest run of each seed, means, spreads, ratios seed by seed."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from beamtree.baselines.registry import BASELINES
from beamtree.config import Config
from experiments.decisive import decisive_settings
from experiments.results import Line, is_replaced

SYSTEM_NAMES = {
    "dtr-u": "DTR(U)",
    "dtr-t": "DTR(T)",
    "dtr-t-rl": "DTR(T-RL)",
    "sasrec": "SASRec",
    "item-to-item": "item to item",
    "popularity": "popularity",
}
SYSTEM_NAMES |= {name: name for name in BASELINES if name not in SYSTEM_NAMES}
ORDER = list(SYSTEM_NAMES)


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (0 for a single value)."""

    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of one value or more."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))

    def text(self, digits: int = 4) -> str:
        """Such as 0.1234 ± 0.0012; without the spread where there is one value."""
        mean = f"{self.mean:.{digits}f}"
        return mean if self.count == 1 else f"{mean} ± {self.deviation:.{digits}f}"


@dataclass(frozen=True)
class Runs:
    """The lines that count: of each data set, system, role and seed (and trial settings) the latest run's.

    final: one line per run, on the test users where the run has asked them, else on the validation users.
    validation, rounds: the lines of these same runs on the validation users, at the end and after each round.
    """

    final: list[Line]
    validation: list[Line]
    rounds: list[Line]

    @classmethod
    def of(cls, lines: Iterable[Line]) -> "Runs":
        """Choose among the lines of a file, in the order in which they were appended."""
        kept = list(lines)
        latest: dict[Hashable, Line] = {}
        for line in kept:
            if line["final"] and line["split"] == ("validation" if line["role"] == "trial" else "test"):
                latest[_key(line)] = line
        chosen = {(_key(line), line["started"]) for line in latest.values()}
        of_chosen = [line for line in kept if (_key(line), line["started"]) in chosen]
        final = sorted(latest.values(), key=lambda line: (line["data"], ORDER.index(line["system"]), line["seed"]))
        validation = [line for line in of_chosen if line["final"] and line["split"] == "validation"]
        rounds = [line for line in of_chosen if not line["final"]]
        return cls(final, validation, rounds)


def grouped(lines: Iterable[Line], by: Callable[[Line], Any]) -> dict[Any, list[Line]]:
    """Lines by a property, in the order in which its values first occur."""
    groups: dict[Any, list[Line]] = {}
    for line in lines:
        groups.setdefault(by(line), []).append(line)
    return groups


def ratios(better: Iterable[Line], worse: Iterable[Line], *, metric: str, part: str = "metrics") -> list[float]:
    """One ratio for each seed that both have; part: which of a line's measurements to take the metric from."""
    below = {line["seed"]: line[part][metric] for line in worse if part in line}
    return [
        line[part][metric] / below[line["seed"]]
        for line in better
        if part in line and line["seed"] in below and below[line["seed"]] > 0
    ]


def settings_of(line: Line) -> dict[str, Any]:
    """The settings that decided a line, by their full name; those that did not exist then are as they were."""
    config = Config.recorded(line["settings"]["config"]).model_dump(mode="json")
    return decisive_settings(config, system=line["system"])


def varying_settings(lines: Sequence[Line]) -> list[str]:
    """Names of the settings that are not the same in all lines that have them; seeds do not count."""
    flat = [settings_of(line) for line in lines]
    names = sorted({name for settings in flat for name in settings} - {"estimator.seed"})
    return [name for name in names if len({str(settings[name]) for settings in flat if name in settings}) > 1]


def _key(line: Line) -> Hashable:
    run = (line["data"], line["system"], line["role"], line["seed"])
    if line["role"] != "trial":
        return run
    settings = line["settings"]
    return (
        *run,
        settings["file"],
        is_replaced(line),
        str(line["study"]),
        str(settings_of(line)),
        str(settings["data"]),
    )
