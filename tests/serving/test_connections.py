"""Clients that do nothing, send nothing or read nothing hurt nobody else. Real sockets; also the parts of uvicorn
that the server leans on: should they change, these tests fail.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from beamtree.artefact import load_artefact, save_artefact
from beamtree.serving.limits import ARRIVING_BYTES, HEADER_BYTES, PIPELINED_REQUESTS, SPARE_CONNECTIONS
from tests.serving.conftest import StartServer
from tests.serving.models import save_model
from tests.serving.server import DEADLINE, Server, ask, wait_until

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
ASK_FOR_MUCH = b"GET /v1/items/100 HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE_ANSWER_BYTES = 300_000
CHUNKED = b"POST /v1/recommend HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
MORE_THAN_THE_SYSTEM_BUFFERS = 40
"""Large answers to one client that does not read."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose items come with a long text, so that large answers take no time to make."""
    folder = tmp_path_factory.mktemp("connected")
    save_model(folder / "small", 60)
    artefact = load_artefact(folder / "small")
    long = artefact.item_table.with_columns(story=pl.lit("x" * LARGE_ANSWER_BYTES))
    save_artefact(folder / "model", replace(artefact, item_table=long))
    return folder / "model"


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    """Closes what a test has opened."""
    with ExitStack() as opened:
        yield opened


def connect(server: Server, sockets: ExitStack, *, received_bytes: int | None = None) -> socket.socket:
    connection = sockets.enter_context(socket.socket())
    if received_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
    connection.settimeout(DEADLINE)
    connection.connect(("127.0.0.1", server.port))
    return connection


def read_until_closed(connection: socket.socket) -> bytes:
    received = b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionResetError:
        pass
    return received


def refusal_of(answer: bytes) -> tuple[int, Any]:
    """Status and code of a refusal in the documented shape."""
    head, body = answer.split(b"\r\n\r\n", 1)
    assert b"content-type: application/json" in head
    error = json.loads(body)["error"]
    assert set(error) == {"code", "message", "details"}
    return int(head.split(b" ")[1]), error["code"]


def dropped(server: Server, reason: str) -> float:
    return server.metric(f'beamtree_connections_dropped_total{{reason="{reason}"}}')


def test_idle_sockets_keep_nobody_out(start: StartServer, model: Path, sockets: ExitStack) -> None:
    server = start(model, "--max-connections", "3")
    established = server.connect()
    assert ask(established, "GET", "/v1/model").status == 200
    for _ in range(10):
        connect(server, sockets)
    wait_until(lambda: server.metric("beamtree_connections") >= 11, what="all idle sockets to be connected")
    assert ask(established, "GET", "/v1/model").status == 200
    assert server.get("/v1/model").status == 200, "an idle socket takes nobody's place"
    established.close()


def test_only_new_clients_are_refused_and_health_and_metrics_go_on(start: StartServer, model: Path) -> None:
    server = start(model, "--max-connections", "3")
    established = [server.connect() for _ in range(3)]
    for connection in established:
        assert ask(connection, "GET", "/v1/model").status == 200
    for _ in range(2):
        refused = server.get("/v1/model")
        assert (refused.status, refused.code) == (503, "too_many_connections")
        assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
        for path in ("/healthz", "/readyz", "/metrics"):
            answer = server.get(path)
            assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert [ask(connection, "GET", "/v1/model").status for connection in established] == [200] * 3
    established.pop().close()
    wait_until(lambda: server.get("/v1/model").status == 200, what="room for another client")
    for connection in established:
        connection.close()


def test_the_longest_silent_newcomer_makes_room(start: StartServer, model: Path, sockets: ExitStack) -> None:
    server = start(model, "--max-connections", "2", "--timeout", "50")
    established = server.connect()
    assert ask(established, "GET", "/v1/model").status == 200
    silent = [connect(server, sockets) for _ in range(2 + SPARE_CONNECTIONS + 3)]
    assert [read_until_closed(connection) for connection in silent[:4]] == [b""] * 4
    assert server.get("/healthz").status == 200
    assert dropped(server, "idle_newcomer") >= 4
    assert ask(established, "GET", "/v1/model").status == 200
    silent[-1].sendall(HEALTH + b"\r\n")
    assert silent[-1].recv(65_536).startswith(b"HTTP/1.1 200"), "the latest newcomers stay"
    established.close()


@pytest.mark.parametrize("last_words", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"])
def test_a_client_that_does_not_read_is_dropped(
    start: StartServer, model: Path, sockets: ExitStack, last_words: bytes
) -> None:
    server = start(model, "--timeout", "1", "--stop-seconds", "50")
    lazy = connect(server, sockets, received_bytes=4096)
    lazy.sendall(ASK_FOR_MUCH * MORE_THAN_THE_SYSTEM_BUFFERS + last_words)
    wait_until(lambda: dropped(server, "slow_reader") == 1, what="the client to be dropped")
    assert read_until_closed(lazy).count(b"HTTP/1.1 200") < MORE_THAN_THE_SYSTEM_BUFFERS
    assert server.metric("beamtree_unread_bytes") == 0
    assert server.metric("beamtree_requests_in_flight") == 1, "nothing waits for it any more"
    assert not [line for line in server.log_lines() if line["level"] == "error"]


def test_a_client_that_reads_gets_all_of_its_answers(start: StartServer, model: Path, sockets: ExitStack) -> None:
    server = start(model)
    reader = connect(server, sockets, received_bytes=262_144)
    reader.sendall(ASK_FOR_MUCH * MORE_THAN_THE_SYSTEM_BUFFERS + HEALTH + b"Connection: close\r\n\r\n")
    wait_until(lambda: server.metric("beamtree_unread_bytes") > 0, what="answers to wait for it")
    assert read_until_closed(reader).count(b"HTTP/1.1 200") == MORE_THAN_THE_SYSTEM_BUFFERS + 1
    assert dropped(server, "slow_reader") == 0


def test_unread_answers_are_bounded_in_all(start: StartServer, model: Path, sockets: ExitStack) -> None:
    server = start(model, "--timeout", "3000", "--max-unread", "100000")
    lazy = []
    for number in range(4):
        lazy.append(connect(server, sockets, received_bytes=4096))
        lazy[-1].sendall(ASK_FOR_MUCH * MORE_THAN_THE_SYSTEM_BUFFERS)
        while dropped(server, "slow_reader") < number:
            assert server.recommend(history=[100], k=3)["source"] == "beam"
        wait_until(lambda: server.metric("beamtree_unread_bytes") > 0, what="an answer that waits")
        assert dropped(server, "slow_reader") == number, "all but the latest are dropped"
    assert read_until_closed(lazy[0])


@pytest.mark.parametrize(
    "options", [("--timeout", "1", "--stop-seconds", "3000"), ("--timeout", "3000", "--stop-seconds", "1")]
)
def test_a_reader_that_stalls_does_not_hold_up_the_end(
    start: StartServer, model: Path, sockets: ExitStack, options: tuple[str, ...]
) -> None:
    server = start(model, *options)
    lazy = connect(server, sockets, received_bytes=4096)
    lazy.sendall(ASK_FOR_MUCH * MORE_THAN_THE_SYSTEM_BUFFERS)
    wait_until(lambda: server.metric("beamtree_unread_bytes") > 0, what="an answer that waits")
    assert server.stop() == 0


@pytest.mark.parametrize("parts", [1, 2, 10])
@pytest.mark.parametrize("size", [66_000, 70_000, 80_000])
def test_large_headers_are_refused_however_they_arrive(
    server: Server, sockets: ExitStack, size: int, parts: int
) -> None:
    connection = connect(server, sockets)
    headers = HEALTH + b"X-Long: " + b"a" * size + b"\r\n\r\n"
    try:
        for first in range(0, len(headers), len(headers) // parts + 1):
            connection.sendall(headers[first : first + len(headers) // parts + 1])
    except (BrokenPipeError, ConnectionResetError):  # refused before the last part
        pass
    assert refusal_of(read_until_closed(connection)) == (431, "headers_too_large")


def test_headers_up_to_the_limit_are_taken(server: Server, sockets: ExitStack) -> None:
    connection = connect(server, sockets)
    connection.sendall(HEALTH + b"Connection: close\r\nX-Long: " + b"a" * (HEADER_BYTES - 200) + b"\r\n\r\n")
    assert read_until_closed(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"hello\r\n\r\n",
        CHUNKED + b"not a number\r\n",
    ],
)
def test_what_is_not_http_is_refused_in_the_documented_shape(server: Server, sockets: ExitStack, text: bytes) -> None:
    connection = connect(server, sockets)
    connection.sendall(text)
    assert refusal_of(read_until_closed(connection)) == (400, "not_http")


def test_a_body_that_nobody_reads_does_not_keep_a_connection(
    start: StartServer, model: Path, sockets: ExitStack
) -> None:
    server = start(model, "--timeout", "1")
    connection = connect(server, sockets)
    connection.sendall(HEALTH + b"Content-Length: 1000000\r\n\r\n" + b" " * 100_000)
    assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    connection.sendall(b" " * 100_000)
    assert b"431" not in read_until_closed(connection)
    assert dropped(server, "slow_request") == 1


ENDLESS = {
    "trailers": b"2\r\n{}\r\n0\r\n" + b"a:b\r\n" * 40_000,
    "one trailer": b"2\r\n{}\r\n0\r\na: " + b"a" * 200_000,
    "an extension of a chunk": b"2;" + b"a" * 200_000,
}


@pytest.mark.parametrize("endless", ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("head", [CHUNKED, HEALTH + b"Transfer-Encoding: chunked\r\n\r\n"], ids=["read", "unread"])
def test_what_comes_with_a_body_and_is_none_is_bounded(
    start: StartServer, model: Path, sockets: ExitStack, head: bytes, endless: bytes
) -> None:
    server = start(model, "--timeout", "3000")
    connection = connect(server, sockets)
    connection.sendall(head)
    try:
        for first in range(0, len(endless), 10_000):
            connection.sendall(endless[first : first + 10_000])
    except (BrokenPipeError, ConnectionResetError):  # refused before the last part
        pass
    read_until_closed(connection)
    assert dropped(server, "headers_too_large") == 1


def test_trailers_are_passed_over(server: Server, sockets: ExitStack) -> None:
    connection = connect(server, sockets)
    body = b"2\r\n{}\r\n0\r\nExpect: 100-continue\r\nX-Checksum: 1\r\n\r\n"
    connection.sendall(CHUNKED + body + HEALTH + b"Connection: close\r\n\r\n")
    answers = read_until_closed(connection)
    assert (answers.count(b"HTTP/1.1 422"), answers.count(b"HTTP/1.1 200")) == (1, 1)


def test_few_requests_may_wait_for_the_answers_before_them(start: StartServer, model: Path, sockets: ExitStack) -> None:
    server = start(model, "--timeout", "3000")
    patient, pushing = connect(server, sockets), connect(server, sockets)
    patient.sendall((HEALTH + b"\r\n") * (PIPELINED_REQUESTS - 1) + HEALTH + b"Connection: close\r\n\r\n")
    assert read_until_closed(patient).count(b"HTTP/1.1 200") == PIPELINED_REQUESTS
    pushing.sendall((HEALTH + b"\r\n") * 10 * PIPELINED_REQUESTS)
    assert read_until_closed(pushing).count(b"HTTP/1.1 200") < PIPELINED_REQUESTS
    assert dropped(server, "pipelined") == 1


def test_unfinished_bodies_are_bounded_in_all(start: StartServer, model: Path, sockets: ExitStack) -> None:
    server = start(model, "--timeout", "3000")
    head = CHUNKED.replace(b"Transfer-Encoding: chunked", b"Content-Length: 1048576")
    enough = ARRIVING_BYTES // 1_000_000
    slow = [connect(server, sockets) for _ in range(enough + 3)]
    for connection in slow:
        connection.sendall(head + b" " * 1_000_000)
    wait_until(lambda: dropped(server, "slow_request") == 3, what="the bodies that began first to be dropped")
    assert 0 < server.metric("beamtree_arriving_bytes") <= ARRIVING_BYTES
    assert server.recommend(history=[100], k=3)["source"] == "beam"
    slow[-1].sendall(b" " * 48_576)
    assert slow[-1].recv(65_536).startswith(b"HTTP/1.1 400"), "the latest body has come in full, and is no JSON"
    for connection in slow:
        connection.close()
    wait_until(lambda: server.metric("beamtree_arriving_bytes") == 0, what="closed connections to be forgotten")
