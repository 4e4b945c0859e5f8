"""Whoever reads the log may stall: nobody waits for it, and what is lost is counted."""

import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beamtree.serving.limits import LOG_QUEUE_BYTES
from beamtree.serving.logs import JsonLines, LogQueue
from tests.serving.conftest import StartServer
from tests.serving.server import wait_until

MORE_THAN_A_PIPE_HOLDS = 200_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def log_queue(descriptor: int, *, max_bytes: int = MORE_THAN_A_PIPE_HOLDS) -> LogQueue:
    queue = LogQueue(descriptor, max_bytes=max_bytes)
    queue.setFormatter(JsonLines())
    return queue


def say(queue: LogQueue, message: str) -> None:
    queue.handle(logging.makeLogRecord({"name": "test", "levelname": "INFO", "msg": message}))


def read_lines(descriptor: int, lines: int) -> list[dict[str, Any]]:
    """At least so many lines, and no half ones."""
    text = b""
    while text.count(b"\n") < lines or not text.endswith(b"\n"):
        text += os.read(descriptor, 65_536)
    return [json.loads(line) for line in text.splitlines()]


def test_lines_arrive_in_order(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    queue = log_queue(writer)
    for number in range(100):
        say(queue, str(number))
    assert [line["message"] for line in read_lines(reader, 100)] == [str(number) for number in range(100)]


def test_a_stalled_reader_loses_lines_and_learns_how_many(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    queue = log_queue(writer)
    dropped: list[None] = []
    queue.count_dropped = lambda: dropped.append(None)
    said = 0
    while len(dropped) < 3:
        say(queue, "x" * 1000)
        said += 1
    written, told = 0, 0
    while written + told < said:
        for line in read_lines(reader, 1):
            written += line["message"] == "x" * 1000
            told += line.get("lines", 0)
    assert (written, told) == (said - 3, 3)
    say(queue, "after")
    assert [line["message"] for line in read_lines(reader, 1)] == ["after"]


def test_flushing_waits_for_what_can_be_written_and_not_for_what_cannot(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    queue = log_queue(writer)
    say(queue, "written")
    queue.flush()
    assert os.read(reader, 65_536).endswith(b'"message":"written"}\n')
    say(queue, "x" * 150_000)
    flushing = threading.Thread(target=queue.flush)
    flushing.start()
    flushing.join(30.0)
    assert not flushing.is_alive()


def test_a_reader_that_has_gone_is_no_failure() -> None:
    reader, writer = os.pipe()
    queue = log_queue(writer)
    dropped = threading.Semaphore(0)
    queue.count_dropped = dropped.release
    os.close(reader)
    say(queue, "to nobody")
    assert dropped.acquire(timeout=30.0)
    os.close(writer)


def test_a_log_that_nobody_reads_stops_neither_the_server_nor_its_end(
    start: StartServer, shared_folder: Path, tmp_path: Path
) -> None:
    log = tmp_path / "server-0.log"  # where `start` lets the first server of a test write
    os.mkfifo(log)
    stalled = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    server = start(shared_folder / "model", "--log-histories")
    history = list(range(10**6, 10**6 + 5000))
    calls = 0
    while server.metric("beamtree_log_lines_dropped_total") == 0:
        answer = server.post("/v1/recommend", {"requests": [{"history": history}] * 16})
        assert answer.status == 200
        calls += 1
        assert calls * 16 * 40_000 < 4 * LOG_QUEUE_BYTES, "nothing was dropped"
    assert server.get("/healthz").status == 200
    assert server.stop() == 0
    os.close(stalled)


def test_the_log_is_complete_when_the_server_has_stopped(start: StartServer, shared_folder: Path) -> None:
    server = start(shared_folder / "model")
    for _ in range(50):
        server.get("/healthz")
    wait_until(lambda: server.metric("beamtree_requests_in_flight") == 1, what="all requests to be noted")
    assert server.stop() == 0
    assert sum(line.get("route") == "/healthz" for line in server.log_lines()) == 50
