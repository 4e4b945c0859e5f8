"""What leaving the attention network out costs in accuracy, looked up in the lines of results/baselines.jsonl."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from experiments.baselines import MODEL
from experiments.lines import ROOT, Line, read_lines

LINES = ROOT / "results" / "baselines.jsonl"
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

    Both on the test users of ml-1m, with the same seed and protocol, and one round of DTR(T). The last line of a fit
    counts.
    """
    fits: dict[frozenset[str], dict[tuple[str, int], Line]] = {DEFAULT: {}, ALL_LEVELS: {}}
    for line in lines:
        parts = _parts(line)
        if parts in fits:
            fits[parts][line["settings"]["data"]["protocol"], line["seed"]] = line
    pairs = sorted(fits[DEFAULT].keys() & fits[ALL_LEVELS].keys())
    if not pairs:
        return Accuracy(
            None,
            f"no result lines yet on {DATA} of a fit with model.parts = ['tower', 'memory'] and one with the same seed "
            "and ['attention', 'tower', 'memory'] on all levels",
        )
    found = {parts: [fits[parts][pair] for pair in pairs] for parts in fits}
    default, other = (
        float(np.mean([line["metrics"][MODEL][METRIC] for line in found[parts]])) for parts in (DEFAULT, ALL_LEVELS)
    )
    named = ("tower + memory", DEFAULT), ("attention on all levels + tower + memory", ALL_LEVELS)
    systems = " over ".join(
        f"{name} ({np.mean([line['seconds'][MODEL] for line in found[parts]]):.0f} s)" for name, parts in named
    )
    pairs_named = ", ".join(f"{protocol} protocol with seed {seed}" for protocol, seed in pairs)
    return Accuracy(default / other, f"{DATA}, {METRIC}, test users, {pairs_named}: {systems}")


def measured_accuracy() -> Accuracy:
    """The same from the repository's own result lines."""
    return accuracy_of_default(read_lines(LINES))


def _parts(line: Line) -> frozenset[str]:
    """The parts of the score that a line was measured with; none where it does not belong here."""
    settings = line["settings"]
    model, training = settings["model"], settings["training"]
    is_plain = training["method"] == "dtr-t" and training["rounds"] == 1 and model["attention_levels"] is None
    belongs = line["data"] == DATA and line["folds"] is None and is_plain
    return frozenset(model["parts"]) if belongs else frozenset()
