"""More sockets than the server has room for: silent ones, then ones that ask once and keep their place."""

import socket
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.siege_harness import Figures, besieged

MAX_CONNECTIONS = 100
SILENT = 1000
PERIOD_SECONDS = 0.5
ONCE = b"GET /v1/model HTTP/1.1\r\nHost: x\r\n\r\n"


def attack(model: Path, folder: Path, *, seconds: float) -> Figures:
    """Half of the time silent sockets, ten times as many as clients may be, anew every half second; then talkers."""
    with (
        besieged(model, "--max-connections", str(MAX_CONNECTIONS), log=folder / "log") as (server, figures),
        ExitStack() as opened,
    ):
        end = time.perf_counter() + seconds / 2
        while time.perf_counter() < end:
            with ExitStack() as silent:
                for _ in range(SILENT):
                    silent.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                time.sleep(PERIOD_SECONDS)
        for _ in range(2 * MAX_CONNECTIONS):
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port))).sendall(ONCE)
        time.sleep(seconds / 2)
        dropped = server.metric('beamtree_connections_dropped_total{reason="idle_newcomer"}')
        refused = server.metric('beamtree_overloaded_total{reason="too_many_connections"}')
    return figures | {"newcomers_dropped": dropped, "newcomers_refused": refused}
