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
    """Sixty clients that ask for as many popular items as they may, which is little work, until they have an answer.

    answers_kept: those that nobody read; unread_mb: the most that the server held for them.
    """
    limits = Limits()
    asked = {"history": [], "k": limits.k, "columns": ["title", "sizes", "tags"]}
    body = json.dumps({"requests": [asked] * limits.batch}).encode()
    headers = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    call = f"POST /v1/recommend HTTP/1.1\r\n{headers}\r\n".encode() + body
    unread = 0.0
    with besieged(model, log=folder / "log") as (server, figures), ExitStack() as opened:
        end = time.perf_counter() + seconds
        clients = [opened.enter_context(_connect(server.port)) for _ in range(CLIENTS)]
        asking, kept = set(clients), 0
        for client in clients:
            client.sendall(call)
        while time.perf_counter() < end:
            for client in list(asking):
                begun = _glance(client)
                if begun.startswith(b"HTTP/1.1 200"):
                    asking.remove(client)
                    kept += 1
                elif begun:
                    client.recv(RECEIVED_BYTES)
                    client.sendall(call)
            unread = max(unread, server.metric("beamtree_unread_bytes"))
            time.sleep(PAUSE_SECONDS)
        dropped = server.metric('beamtree_connections_dropped_total{reason="slow_reader"}')
    return figures | {"answers_kept": kept, "readers_dropped": dropped, "unread_mb": round(unread / 2**20, 1)}


def _connect(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
    client.connect(("127.0.0.1", port))
    return client


def _glance(client: socket.socket) -> bytes:
    """The beginning of an answer, which stays unread; empty where there is none yet."""
    try:
        return client.recv(16, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""
