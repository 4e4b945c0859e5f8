"""Ever new, large conditions: what is kept of them must stay small."""

import json
from collections import Counter
from pathlib import Path

from benchmarks.siege_harness import Figures, besieged, hammer

REQUESTS = 1200
CONDITION_BYTES = 900_000


def attack(model: Path, folder: Path, *, seconds: float) -> Figures:
    """First conditions as large as a body, then as large as a condition may be, then many small ones."""
    large = [_body(number, values=1, characters=CONDITION_BYTES) for number in range(8)]
    allowed = [_body(number, values=850, characters=1000) for number in range(64)]
    small = [_body(number, values=20, characters=20) for number in range(REQUESTS)]
    with besieged(model, log=folder / "log") as (server, figures):
        statuses: Counter[str] = Counter()
        for bodies in (large, allowed, small):
            statuses += hammer(server.port, bodies, connections=4, seconds=seconds / 3)
        cached = server.metric("beamtree_filter_cache_bytes")
    return figures | {"attacker": dict(statuses), "filter_cache_mb": round(cached / 2**20, 1)}


def _body(number: int, *, values: int, characters: int) -> bytes:
    listed = [f"{number}-{value}-".ljust(characters, "x") for value in range(values)]
    return json.dumps({"history": [1, 2], "allow": {"where": [{"column": "title", "one_of": listed}]}}).encode()
