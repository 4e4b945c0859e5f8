"""Nobody reads the log: requests go on, what is lost is counted, and SIGTERM still ends the server."""

import json
import os
from pathlib import Path

from benchmarks.siege_harness import NUM_ITEMS, Figures, besieged, hammer

HISTORY = 5000


def attack(model: Path, folder: Path, *, seconds: float) -> Figures:
    """The log is a pipe that nobody reads, and its lines are long: histories of unknown items, which are little work.

    killed_to_stop: 1 where SIGTERM did not help.
    """
    log = folder / "log"
    os.mkfifo(log)
    stalled = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    unknown = list(range(NUM_ITEMS, NUM_ITEMS + HISTORY))
    body = json.dumps({"history": unknown, "k": 1, "unknown": "ignore"}).encode()
    with besieged(model, "--log-histories", log=log) as (server, figures):
        statuses = hammer(server.port, [body], connections=2, seconds=seconds)
        dropped = server.metric("beamtree_log_lines_dropped_total")
    os.close(stalled)
    return figures | {
        "attacker": dict(statuses),
        "log_lines_dropped": dropped,
        "killed_to_stop": int(server.process.returncode != 0),
    }
