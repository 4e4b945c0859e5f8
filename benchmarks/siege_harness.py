"""What every attack uses: a model to serve, a real server on loopback, innocent clients beside the attack, a hammer."""

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from beamtree.artefact import save_artefact
from benchmarks.serving import REPOSITORY, RUN, START_SECONDS, random_model
from benchmarks.siege_watch import ATTACK, PATIENCE_SECONDS

Figures = dict[str, Any]

NUM_ITEMS = 20_000
ALONE_SECONDS = 2.0


def save_besieged_model(directory: Path) -> None:
    """A random model of the published sizes whose item table also has lists of numbers and of texts."""
    artefact = random_model(NUM_ITEMS)
    numbers = artefact.item_table["item_id"].to_list()
    columns = [
        pl.Series("sizes", [[number % 7, number % 11] for number in numbers]),
        pl.Series("tags", [["even"] if number % 2 == 0 else ["odd", "strange"] for number in numbers]),
    ]
    save_artefact(directory, replace(artefact, item_table=artefact.item_table.with_columns(columns)))


class SiegeServer:
    """`beamtree serve MODEL OPTIONS` on a free port of 127.0.0.1, in a process of its own; its log goes to a file."""

    def __init__(self, model: Path, *options: str, log: Path) -> None:
        command = [sys.executable, "-c", RUN, "serve", str(model), "--port", "0", *options]
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        with log.open("ab") as stream:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True, env=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if found is None:
            self.process.kill()
            self.process.wait(START_SECONDS)
            raise RuntimeError(f"the server did not start: {log.read_text()[-1000:]}")
        self.port = int(found.group(1))

    @property
    def is_alive(self) -> bool:
        """Whether the process is still there."""
        return self.process.poll() is None

    def metric(self, line_start: str) -> float:
        """The value of the first metric whose line starts so; 0 where there is none."""
        connection = connect(self.port)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        values = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(line_start)]
        return float(values[0]) if values else 0.0

    def stop(self) -> None:
        """SIGTERM, or SIGKILL where that does not help."""
        self.process.terminate()
        try:
            self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def besieged(model: Path, *options: str, log: Path) -> Iterator[tuple[SiegeServer, Figures]]:
    """A server with innocent clients, first alone for a while, then during the body, which attacks.

    The figures are filled when the body has ended: those of `siege_watch`, and `servers_died`.
    """
    server, figures = SiegeServer(model, *options, log=log), Figures()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.siege_watch", str(server.port), str(server.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        ) as watch:
            try:
                assert watch.stdout is not None
                watch.stdout.readline()
                time.sleep(ALONE_SECONDS)
                _enter(watch, ATTACK)
                yield server, figures
                said, _ = watch.communicate(timeout=2 * PATIENCE_SECONDS)
                figures.update(json.loads(said), servers_died=int(not server.is_alive))
            finally:
                watch.kill()
    finally:
        server.stop()


def _enter(watch: subprocess.Popen[str], phase: str) -> None:
    assert watch.stdin is not None
    watch.stdin.write(f"{phase}\n")
    watch.stdin.flush()


def connect(port: int) -> http.client.HTTPConnection:
    """A new connection."""
    return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)


def post(connection: http.client.HTTPConnection, path: str, body: object) -> tuple[int, Any]:
    """Status and JSON of the answer to one request."""
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def hammer(
    port: int,
    bodies: Sequence[bytes],
    *,
    connections: int,
    seconds: float,
    settling_seconds: float = 0.0,
    path: str = "/v1/recommend",
) -> Counter[str]:
    """Post the bodies in turn over all connections at once; how often each status came within the time.

    "lost" counts connections that ended without an answer. settling_seconds: before that time, in which nothing counts.
    """
    statuses: Counter[str] = Counter()
    start = time.perf_counter() + settling_seconds
    end = start + seconds

    def work(first: int) -> None:
        connection, number = connect(port), first
        while time.perf_counter() < end:
            try:
                connection.request("POST", path, bodies[number % len(bodies)], {"Content-Type": "application/json"})
                response = connection.getresponse()
                response.read()
                status = str(response.status)
            except (OSError, http.client.HTTPException):
                status = "lost"
                connection.close()
                connection = connect(port)
            if start <= time.perf_counter() < end:
                statuses[status] += 1
            number += connections
        connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses
