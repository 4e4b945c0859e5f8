"""Timing on a machine that others use too: the contestants take turns, and the best of many turns counts for each."""

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

SGEMM_SIZE = 2000
SGEMM_FLOPS = 2 * SGEMM_SIZE**3


def take_turns(contestants: Mapping[str, Callable[[], object]], *, turns: int) -> dict[str, list[float]]:
    """Seconds of every turn of each contestant, after one turn that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(turns + 1):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            if turn > 0:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def sgemm() -> Callable[[], object]:
    """Torch's product of two square matrices of 2,000 rows, the yardstick of the machine."""
    first, second = torch.randn(SGEMM_SIZE, SGEMM_SIZE), torch.randn(SGEMM_SIZE, SGEMM_SIZE)
    out = torch.empty(SGEMM_SIZE, SGEMM_SIZE)
    return lambda: torch.mm(first, second, out=out)


def report(settings: Mapping[str, Any], results: Mapping[str, Any], *, as_json: bool) -> None:
    """Settings, the machine's cores and the results, as one JSON object or as lines."""
    everything = {"settings": {**settings, "cores": len(os.sched_getaffinity(0))}, **_rounded(results)}
    if as_json:
        print(json.dumps(everything))
        return
    for name, value in everything.items():
        rows = value if isinstance(value, list) else [value]
        for row in rows:
            text = ", ".join(f"{key} {part}" for key, part in row.items()) if isinstance(row, dict) else str(row)
            print(f"{name}: {text}")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value
