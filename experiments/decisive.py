"""Which settings decide a run: others may differ, and it is still the same run."""

from collections.abc import Mapping
from typing import Any

from beamtree.baselines.registry import BASELINES
from beamtree.baselines.sasrec import SASREC_SYSTEMS

READING = ("log", "data", "retrieval")
"""What every system depends on: what is read, who is held out, and how they are asked."""

TREE = ("tree", "model", "training")

SECTIONS = {
    "dtr-u": (*READING, *TREE),
    "dtr-t": (*READING, *TREE),
    "dtr-t-rl": (*READING, *TREE, "estimator"),
    **dict.fromkeys(BASELINES, READING),
    **dict.fromkeys(SASREC_SYSTEMS, (*READING, "estimator")),
}
ALSO = dict.fromkeys(
    SASREC_SYSTEMS,
    ("model.windows", "training.target_horizon", "training.targets_per_history", "training.validation_users"),
)
"""Of other sections: the histories, the targets and the users that validate are those of the trees."""

UNDECIDED = ("training.seed", "training.method", "training.device", "training.checkpoint_minutes")


def decisive_settings(config: Mapping[str, Mapping[str, Any]], *, system: str) -> dict[str, Any]:
    """By their full name. Seed and method tell runs apart anyway; where they run and how often they save do not."""
    named = {f"{section}.{name}": value for section, values in config.items() for name, value in values.items()}
    return {
        name: value
        for name, value in named.items()
        if name.partition(".")[0] in SECTIONS[system] or name in ALSO.get(system, ())
        if name not in UNDECIDED
    }
