"""What the paper's theory is about, measured in a trained tree: samplers, max-heap, labels, level by level."""

from typing import Any

from beamtree.artefact import Artefact
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.diagnostics.averages import Average
from beamtree.diagnostics.diagnose import Examined, diagnose
from beamtree.diagnostics.estimators import POPULARITY, SASREC, NamedEstimator
from beamtree.diagnostics.held_out import ask_users
from beamtree.diagnostics.label_changes import LabelChanges
from beamtree.diagnostics.report import LevelReport
from beamtree.model.estimator import Estimator, PopularityEstimator

USERS = 200
SEED = 0
"""Whom every run asks: the same validation users, whatever its own seed."""


def measure_theory(artefact: Artefact, estimator: Estimator | None, dataset: Dataset, split: Split) -> dict[str, Any]:
    """What `beamtree inspect` finds, in short; how far labels change only where an estimator made them."""
    asked = ask_users(dataset, split, group="validation", count=USERS, seed=SEED)
    named = (
        NamedEstimator(POPULARITY, PopularityEstimator(artefact.popularity))
        if estimator is None
        else NamedEstimator(SASREC, estimator)
    )
    found = diagnose(Examined(artefact, dataset, split, asked, SEED), named)
    return {
        "users": len(asked.users),
        "levels": [_level(level) for level in found.levels],
        "beams": [
            {"width": beam.width, "overlap": _mean(beam.overlap), "f@20": _mean(beam.f)} for beam in found.beams.results
        ],
        "labels": None if estimator is None else _labels(found.labels),
    }


def _level(level: LevelReport) -> dict[str, Any]:
    return {
        "level": level.level,
        "nodes": level.nodes,
        "sampled": not level.taken_whole,
        "loss": _mean(level.loss),
        "kl_uniform": _mean(level.uniform),
        "kl_from_root": _mean(level.from_root),
        "kl_top_down": _mean(level.from_level),
        "child_violations": _mean(level.child_violations),
        "leaf_violations": _mean(level.leaf_violations),
        "path_violations": _mean(level.path_violations),
        "outside_beam": _mean(level.lost_paths),
    }


def _labels(labels: LabelChanges) -> dict[str, Any]:
    return {
        "positive": [round(share, 4) for share in labels.positive],
        "changed": {f"{change.threshold:.0e}": _mean(change.changed) for change in labels.changes},
    }


def _mean(average: Average | None) -> float | None:
    return None if average is None else round(average.mean, 5)
