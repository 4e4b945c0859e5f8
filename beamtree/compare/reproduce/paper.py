"""The figures of the paper's tables (paper.json); its plots are printed without numbers."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

LOGS = ("Movie", "MIND", "Amazon", "Tmall")
CostTable = Literal["inference-time", "training-time", "memory"]
COMPARABLE = (
    "The paper's figures are for other logs, other machines and far longer training: compare ratios, not figures."
)


def published_accuracy(metric: str = "f@20") -> dict[str, dict[str, float]]:
    """By log and system: precision, recall or f at 20 or 40, of all systems in both tables."""
    printed = _printed()
    place = printed["metrics"].index(metric)
    both = {log: {**printed["results"][log], **printed["sequential"][log]} for log in LOGS}
    return {log: {name: values[place] for name, values in of_log.items()} for log, of_log in both.items()}


def published_costs(table: CostTable) -> Mapping[str, Mapping[str, float]]:
    """By log and system: seconds for all test users, seconds per 1,000 steps, or MB."""
    found: dict[str, dict[str, float]] = _printed()[table]
    return found


def published_label_changes() -> Mapping[str, list[float]]:
    """By log: the share of rectified labels that change under noise of up to 1e-7, 1e-6, ... 1e-2."""
    found: dict[str, list[float]] = _printed()["perturbation"]
    return found


@cache
def _printed() -> dict[str, Any]:
    text = files("beamtree.compare.reproduce").joinpath("paper.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
