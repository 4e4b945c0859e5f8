"""Clients that ask for the largest answers and do not read them: what waits for them stays small."""

import json
import socket
import time
from contextlib import ExitStack
from pathlib import Path

from beamtree.serving.limits import Limits
from benchmarks.siege_harness import Figures, besieged

CLIENTS = 60
RECEIVED_BYTES = 4096
PAUSE_SECONDS = 0.1


def attack(model: Path, folder: Path, *, seconds: float) -> Figures:
    """Sixty clients, each with one call for as many items as it may ask for. unread_mb: the most that waited."""
    limits = Limits()
    asked = {"history": [1, 2], "k": limits.k, "columns": ["title", "sizes", "tags"]}
    body = json.dumps({"requests": [asked] * limits.batch}).encode()
    headers = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    call = f"POST /v1/recommend HTTP/1.1\r\n{headers}\r\n".encode() + body
    unread = 0.0
    with besieged(model, log=folder / "log") as (server, figures), ExitStack() as opened:
        for _ in range(CLIENTS):
            client = opened.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
            client.connect(("127.0.0.1", server.port))
            client.sendall(call)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            unread = max(unread, server.metric("beamtree_unread_bytes"))
            time.sleep(PAUSE_SECONDS)
        dropped = server.metric('beamtree_connections_dropped_total{reason="slow_reader"}')
    return figures | {"readers_dropped": dropped, "unread_mb": round(unread / 2**20, 1)}
