"""Clients that ask for as much as they may: light ones stay quick, and twice the load gives no fewer answers."""

import json
from pathlib import Path

import numpy as np

from beamtree.serving.limits import Limits
from benchmarks.siege_harness import NUM_ITEMS, Figures, besieged, hammer

HEAVY_CLIENTS = 4
FEW_CONNECTIONS, MANY_CONNECTIONS = 32, 64
BATCH = 16
SETTLING_SECONDS = 5.0
"""As long as calls may wait: half of the time limit. All share the threads, so that the first answers take long."""


def attack(model: Path, folder: Path, *, seconds: float) -> Figures:
    """Four clients with maximal batches beside light ones; then batches from 32 connections and from 64.

    successes_ratio: batches answered per second from 64 connections over those from 32.
    """
    generator = np.random.default_rng(0)
    limits = Limits()
    heaviest = _body(generator, requests=limits.batch, k=limits.k, beam=limits.beam)
    with besieged(model, log=folder / "log") as (server, figures):
        heavy = hammer(server.port, [heaviest], connections=HEAVY_CLIENTS, seconds=seconds)
    batches = [_body(generator, requests=BATCH, k=20, beam=150) for _ in range(16)]
    with besieged(model, log=folder / "log") as (server, crowded):
        few, many = (
            hammer(server.port, batches, connections=connections, seconds=seconds, settling_seconds=SETTLING_SECONDS)
            for connections in (FEW_CONNECTIONS, MANY_CONNECTIONS)
        )
    worst = {name: max(figures[name], crowded[name]) for name in ("health_p99_ms", "memory_growth_mb", "servers_died")}
    return (
        figures
        | worst
        | {
            "innocent_asked": figures["innocent_asked"] + crowded["innocent_asked"],
            "innocent_failed": figures["innocent_failed"] + crowded["innocent_failed"],
            "first_failures": figures["first_failures"] + crowded["first_failures"],
            "attacker": dict(heavy),
            "crowd": {str(FEW_CONNECTIONS): dict(few), str(MANY_CONNECTIONS): dict(many)},
            "successes_ratio": round(many["200"] / max(1, few["200"]), 3),
        }
    )


def _body(generator: np.random.Generator, *, requests: int, k: int, beam: int) -> bytes:
    histories = generator.integers(0, NUM_ITEMS, size=(requests, 50)).tolist()
    return json.dumps({"requests": [{"history": history, "k": k, "beam": beam} for history in histories]}).encode()
