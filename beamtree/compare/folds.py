"""Results of the same system and seed on different folds of the users, as one result."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Result = dict[str, Any]


def join_folds(folds: Sequence[Result]) -> Result:
    """One result over the users of all folds, one fold after the other.

    What is kept by user (under "per_user", at any depth) is put together, and its means are the metrics; other figures
    are means over folds, and what is no figure is that of the first fold.
    """
    first, *others = sorted(folds, key=lambda result: result.get("fold", ()))
    if not others:
        return first
    joined: Result = _joined([first, *others])
    means = {name: float(np.mean(values)) for name, values in joined["per_user"].items()}
    return joined | {"users": sum(one["users"] for one in folds), "metrics": joined["metrics"] | means}


def _joined(values: Sequence[Any]) -> Any:
    first = values[0]
    if all(isinstance(value, dict) for value in values):
        shared = [name for name in first if all(name in value for value in values)]
        return {
            name: (_all_users if name == "per_user" else _joined)([value[name] for value in values]) for name in shared
        }
    if all(isinstance(value, list) for value in values):
        return first if values.count(first) == len(values) else [_joined(rows) for rows in zip(*values, strict=False)]
    if values.count(first) < len(values) and all(isinstance(value, int | float) for value in values):
        return float(np.mean(values))
    return first


def _all_users(values: Sequence[dict[str, list[float]]]) -> dict[str, list[float]]:
    return {name: [one for value in values for one in value[name]] for name in values[0]}
