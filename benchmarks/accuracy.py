"""What leaving the attention network out costs in accuracy, looked up in the lines that experiments have measured."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from beamtree.config import Config
from beamtree.errors import SettingsError
from experiments.results import Line, read_lines

RESULTS = Path(__file__).resolve().parents[1] / "results"
DATA = "ml-1m"
METRIC = "f@20"
DEFAULT = frozenset({"tower", "memory"})
ALL_LEVELS = DEFAULT | {"attention"}


@dataclass(frozen=True)
class Accuracy:
    """The mean F@20 of the default over that of the other fit, and a sentence on which fits these are."""

    ratio: float | None
    basis: str


def accuracy_of_default(lines: Iterable[Line]) -> Accuracy:
    """The default fit (tower and memory) over a fit with attention on all levels beside them.

    Both on ml-1m, with the same seed, role and protocol, at the end of their training; on the test users where both
    were asked for them, else on the validation users. The last line of a fit counts.
    """
    fits: dict[frozenset[str], dict[tuple[str, str, str, int], Line]] = {DEFAULT: {}, ALL_LEVELS: {}}
    for line in lines:
        parts = _parts(line)
        if parts in fits:
            fits[parts][line["split"], line["role"], line["protocol"], line["seed"]] = line
    shared = fits[DEFAULT].keys() & fits[ALL_LEVELS].keys()
    pairs = sorted(key for key in shared if key[0] == ("test" if any(key[0] == "test" for key in shared) else key[0]))
    if not pairs:
        return Accuracy(
            None,
            f"no result lines yet on {DATA} of a fit with model.parts = ['tower', 'memory'] and one with the same seed "
            "and ['attention', 'tower', 'memory'] on all levels",
        )
    default, other = (
        float(np.mean([fits[parts][key]["metrics"][METRIC] for key in pairs])) for parts in (DEFAULT, ALL_LEVELS)
    )
    named = ("tower + memory", DEFAULT), ("attention on all levels + tower + memory", ALL_LEVELS)
    systems = " over ".join(f"{name} ({_described([fits[parts][key] for key in pairs])})" for name, parts in named)
    split, role, protocol, _ = pairs[-1]
    seeds = ", ".join(str(key[3]) for key in pairs)
    return Accuracy(
        default / other, f"{DATA}, {METRIC}, {split} users, {role}, protocol {protocol}, seeds {seeds}: {systems}"
    )


def measured_accuracy() -> Accuracy:
    """The same from the repository's own result lines."""
    return accuracy_of_default([line for name in ("trials", "runs") for line in read_lines(RESULTS / f"{name}.jsonl")])


def _parts(line: Line) -> frozenset[str]:
    """The parts of the score that a line was measured with; none where it does not belong here."""
    is_tree = str(line["system"]).startswith("dtr-")
    if line["data"] != DATA or not line["final"] or not is_tree:
        return frozenset()
    try:
        model = Config.recorded(line["settings"]["config"]).model
    except SettingsError:
        return frozenset()
    return frozenset(model.parts) if model.attention_levels is None else frozenset()


def _described(lines: list[dict[str, Any]]) -> str:
    """Settings files and the mean seconds of training."""
    files = ", ".join(sorted({line["settings"]["file"] for line in lines}))
    return f"{files}, {np.mean([line['seconds'] for line in lines]):.0f} s"
