"""Requests that raise instead of answering: their neighbours in a batch must not notice."""

import json
from pathlib import Path
from typing import Any

from benchmarks.siege_harness import Figures, besieged, hammer

CONDITIONS: list[dict[str, Any]] = [
    {"column": "title", "contains": "x" * 330_000},
    {"column": "sizes", "one_of": [1.5]},
    {"column": "sizes", "contains": "1"},
    {"column": "category", "at_least": 1e300},
    {"column": "tags", "one_of": [1]},
    {"column": "nothing", "one_of": [1]},
]


def attack(model: Path, folder: Path, *, seconds: float) -> Figures:
    """Conditions that cannot be evaluated, from four connections. server_errors: 5xx that the attacker itself got."""
    bodies = [json.dumps({"history": [1, 2], "allow": {"where": [one]}}).encode() for one in CONDITIONS]
    with besieged(model, log=folder / "log") as (server, figures):
        statuses = hammer(server.port, bodies, connections=4, seconds=seconds)
    return figures | {"attacker": dict(statuses), "server_errors": statuses["500"]}
