"""What the server costs over the bare engine, and how much it answers: one history per request, all on this machine.

    python -m benchmarks.serving --json

A model with random weights and the published sizes is saved and served by `beamtree serve` on 127.0.0.1. Engine and
server are measured in turn, in short rounds, so that other work on the machine disturbs both alike.

overhead_ms_p50       one request at a time over one connection: the median of a block of 16, less the median of the
                      engine's own search in the block just before; of all such differences the median
throughput_fraction   requests per second with all connections busy, as a share of the histories per second that the
                      engine searches in batches of 64
"""

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from beamtree.artefact import Artefact, save_artefact
from beamtree.config import Config, ModelSettings
from beamtree.data.requests import Histories, Requests
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.tree.build import plant, random_order
from beamtree.tree.item_tree import ItemTree

K = 20
ENGINE_BATCH = 64
REQUESTS = 256
BLOCKS, BLOCK, WARM_UP = 8, 20, 4
START_SECONDS = 60
WARM_UP_SECONDS = 0.5
REPOSITORY = Path(__file__).resolve().parents[1]
RUN = "from beamtree.cli.main import run; run()"
HEAD_END = b"\r\n\r\n"
CONTENT_LENGTH = re.compile(rb"content-length: (\d+)")


def random_model(num_items: int, *, seed: int = 0) -> Artefact:
    """An artefact of the published sizes whose weights are random."""
    generator = np.random.default_rng(seed)
    config = Config.preset(
        "paper",
        data={"min_held_out": 15},
        decided={"shuffle_ties": False},
        model={"network": {"normalisation": "none", "dropout": 0.0}},
        retrieval={"exclude_seen": True},
    )
    tree = plant(random_order(num_items, generator=generator), branching=config.tree.branching)
    ids = np.arange(num_items)
    return Artefact(
        config=config,
        weights=_random_weights(config.model, tree, generator=generator),
        tree=tree,
        popularity=generator.integers(0, 1000, num_items),
        item_table=pl.DataFrame({"item_id": ids, "category": ids % 20, "title": [f"Title {item}" for item in ids]}),
        data_fingerprint="",
    )


def _random_weights(
    settings: ModelSettings, tree: ItemTree, *, generator: np.random.Generator
) -> dict[str, npt.NDArray[np.float32]]:
    size, hidden = settings.embedding_dim, settings.network.attention_hidden
    widths = [len(settings.windows) * size + size, *settings.layers, 1]
    shapes: dict[str, tuple[int, ...]] = {
        "node_table": (tree.num_nodes, size),
        "attention.hidden.weight": (hidden, 3 * size),
        "attention.hidden.bias": (hidden,),
        "attention.hidden_slope": (1,),
        "attention.output.weight": (1, hidden),
        "attention.output.bias": (1,),
        "attention.output_slope": (1,),
        "mlp.slopes": (3,),
    }
    for layer in range(4):
        shapes[f"mlp.{layer}.weight"] = (widths[layer + 1], widths[layer])
        shapes[f"mlp.{layer}.bias"] = (widths[layer + 1],)
    for layer in range(3):
        shapes[f"norm.{layer}.weight"] = shapes[f"norm.{layer}.bias"] = (widths[layer + 1],)
    return {f"attention/{name}": generator.normal(0.0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


@contextmanager
def running_server(model: Path) -> Iterator[int]:
    """The port of a server for this model, in a process of its own with default settings."""
    command = [sys.executable, "-c", RUN, "serve", str(model), "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found is None:
                raise RuntimeError(f"the server did not start: {line!r}")
            yield int(found.group(1))
        finally:
            server.terminate()
            server.wait(START_SECONDS)


def http_request(history: npt.NDArray[np.int32]) -> bytes:
    """The bytes of a request for one history."""
    body = json.dumps({"history": history.tolist(), "k": K}).encode()
    head = (
        "POST /v1/recommend HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection(asyncio.Protocol):
    """Sends one request after another until the end of a window; notes how long the answers took that came within."""

    def __init__(
        self, requests: list[bytes], *, first: int, window: tuple[float, float], finished: asyncio.Future[None]
    ) -> None:
        self._requests = requests
        self._next = first
        self._window = window
        self._finished = finished
        self._received = b""
        self.seconds: list[float] = []
        self.failures = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first time."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Note a complete answer and ask again."""
        self._received += data
        if not _is_complete(self._received):
            return
        now, (begin, end) = time.perf_counter(), self._window
        if begin <= now < end:
            self.seconds.append(now - self._asked_at)
        self.failures += not self._received.startswith(b"HTTP/1.1 200")
        self._received = b""
        if now < end:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        """The end, wanted or not."""
        if not self._finished.done():
            self._finished.set_result(None)

    def _ask(self) -> None:
        self._asked_at = time.perf_counter()
        self._transport.write(self._requests[self._next % len(self._requests)])
        self._next += 1


def _is_complete(received: bytes) -> bool:
    head = received.find(HEAD_END)
    if head < 0:
        return False
    length = CONTENT_LENGTH.search(received, 0, head + 2)
    return length is not None and len(received) >= head + len(HEAD_END) + int(length.group(1))


async def load(port: int, requests: list[bytes], *, connections: int, seconds: float) -> tuple[list[float], int]:
    """Keep all connections busy: the latencies of all answers within so many seconds, and how many were failures.

    The seconds are counted from a moment when everything is under way.
    """
    loop = asyncio.get_running_loop()
    begin = time.perf_counter() + WARM_UP_SECONDS
    opened: list[Connection] = []
    finished: list[asyncio.Future[None]] = []
    for number in range(connections):
        done: asyncio.Future[None] = loop.create_future()

        def make(number: int = number, done: asyncio.Future[None] = done) -> Connection:
            return Connection(requests, first=number * 7, window=(begin, begin + seconds), finished=done)

        _, connection = await loop.create_connection(make, "127.0.0.1", port)
        opened.append(connection)
        finished.append(done)
    await asyncio.wait_for(asyncio.gather(*finished), seconds + START_SECONDS)
    latencies = [latency for connection in opened for latency in connection.seconds]
    return latencies, sum(connection.failures for connection in opened)


class Client:
    """One connection that is asked once at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> float:
        """Seconds until the answer was there."""
        began_at = time.perf_counter()
        self._socket.sendall(request)
        received = b""
        while not _is_complete(received):
            part = self._socket.recv(65_536)
            if not part:
                raise RuntimeError("the server closed the connection")
            received += part
        if not received.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the server refused: {received[:500]!r}")
        return time.perf_counter() - began_at

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class BareEngine:
    """The engine without a server, asked for exactly what the server asks it."""

    def __init__(self, artefact: Artefact, histories: npt.NDArray[np.int32]) -> None:
        self._engine = Engine(build_scorer(artefact.weights, artefact.tree, config=artefact.config), artefact.tree)
        self._beam_width = artefact.config.retrieval.beam_width
        self._histories = histories

    def search_one(self, index: int) -> float:
        """Seconds for one history."""
        history = self._histories[index % len(self._histories)]
        began_at = time.perf_counter()
        self._search(history[None, :])
        return time.perf_counter() - began_at

    def per_second(self, seconds: float) -> float:
        """Histories per second in batches."""
        began_at = time.perf_counter()
        done = 0
        while time.perf_counter() < began_at + seconds:
            first = done % (len(self._histories) - ENGINE_BATCH + 1)
            self._search(self._histories[first : first + ENGINE_BATCH])
            done += ENGINE_BATCH
        return done / (time.perf_counter() - began_at)

    def _search(self, histories: npt.NDArray[np.int32]) -> None:
        whole = Histories.of_rows(histories)
        requests = Requests(whole, excluded=whole.flattened())
        self._engine.search(requests, k=K, beam_width=self._beam_width)


def measure(*, num_items: int, connections: int, seconds: float, rounds: int) -> dict[str, Any]:
    """All figures. `seconds` is the time with all connections busy, over all rounds."""
    artefact = random_model(num_items)
    generator = np.random.default_rng(1)
    length = artefact.config.model.attention_history
    histories = generator.integers(0, num_items, size=(REQUESTS, length)).astype(np.int32)
    requests = [http_request(history) for history in histories]
    bare = BareEngine(artefact, histories)
    alone: list[list[float]] = []
    served: list[list[float]] = []
    latencies: list[float] = []
    failures = 0
    bare_rates: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        save_artefact(Path(folder) / "model", artefact)
        with running_server(Path(folder) / "model") as port:
            client = Client(port)
            for warm_up in range(20):
                bare.search_one(warm_up)
                client.ask(requests[warm_up])
            for _ in range(rounds):
                for _ in range(BLOCKS):
                    alone.append([bare.search_one(step) for step in range(BLOCK)][WARM_UP:])
                    served.append([client.ask(requests[step]) for step in range(BLOCK)][WARM_UP:])
                bare_rates.append(bare.per_second(seconds / rounds))
                load_now = load(port, requests, connections=connections, seconds=seconds / rounds)
                some, failed = asyncio.run(load_now)
                latencies += some
                failures += failed
            client.close()
    p50, p95, p99 = (float(value) for value in np.percentile(np.array(latencies) * 1000, [50, 95, 99]))
    engine_rate = float(np.mean(bare_rates))
    rate = len(latencies) / seconds
    engine_ms, served_ms = np.median(alone, axis=1) * 1000, np.median(served, axis=1) * 1000
    return {
        "requests_per_second": round(rate, 1),
        "p50_ms": round(p50, 2),
        "p95_ms": round(p95, 2),
        "p99_ms": round(p99, 2),
        "overhead_ms_p50": round(float(np.median(served_ms - engine_ms)), 3),
        "throughput_fraction": round(rate / engine_rate, 3),
        "one_connection_ms_p50": round(float(np.median(served_ms)), 3),
        "engine_ms_p50": round(float(np.median(engine_ms)), 3),
        "engine_per_second": round(engine_rate, 1),
        "requests": len(latencies),
        "failures": failures,
        "connections": connections,
        "items": num_items,
    }


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000, help="items of the model")
    parser.add_argument("--connections", type=int, default=32, help="connections at once")
    parser.add_argument("--seconds", type=float, default=8.0, help="time with all connections busy")
    parser.add_argument("--rounds", type=int, default=4, help="turns between engine and server")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if not (arguments.items >= ENGINE_BATCH and 1 <= arguments.connections <= 512 and 0 < arguments.seconds <= 120):
        parser.error("--items is 64 or more, --connections 1 to 512, --seconds at most 120")
    measured = measure(
        num_items=arguments.items,
        connections=arguments.connections,
        seconds=arguments.seconds,
        rounds=max(1, arguments.rounds),
    )
    if arguments.json:
        print(json.dumps(measured))
        return
    for name, value in measured.items():
        print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
