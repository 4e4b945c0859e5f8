"""Too much, too slow, suddenly dead: what the server does when the world is not kind."""

import json
import signal
import socket
import sqlite3
import threading
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from beamtree.errors import ArtefactError, DataError, InputError
from beamtree.serving.run import serve
from beamtree.serving.settings import ServerSettings
from tests.serving.conftest import StartServer
from tests.serving.models import save_model
from tests.serving.server import DEADLINE, Answer, Server, ask, wait_until

UNFINISHED = (
    b'POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"history"'
)
SLOW_SETTINGS: dict[str, dict[str, Any]] = {
    "model": {"embedding_dim": 16, "network": {"windows": [40, 20, 9], "attention_hidden": 36}},
    "data": {"min_held_out": 2},
    "decided": {"shuffle_ties": False},
    "retrieval": {"beam_width": 8, "exclude_seen": True},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operated") / "model"
    save_model(folder, 60)
    return folder


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model large enough to be kept busy for as long as a test needs it."""
    folder = tmp_path_factory.mktemp("slow") / "model"
    save_model(folder, 4000, settings=SLOW_SETTINGS)
    return folder


def busy_call(requests: int) -> dict[str, Any]:
    return {"requests": [{"history": list(range(100, 169)), "k": 1, "beam": 2000}] * requests}


def wait_for_arrival(server: Server, calls: int) -> None:
    """Until so many calls are under way besides the one that asks for the metrics."""
    wait_until(lambda: server.metric("beamtree_requests_in_flight") == calls + 1, what=f"{calls} calls under way")


class Background:
    """A call on a thread of its own."""

    def __init__(self, server: Server, body: dict[str, Any]) -> None:
        self.answer: Answer | None = None
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(server, body), daemon=True)
        self._thread.start()

    def _run(self, server: Server, body: dict[str, Any]) -> None:
        try:
            self.answer = server.post("/v1/recommend", body)
        except Exception as failure:
            self.failure = failure

    def join(self) -> Answer | None:
        """The answer, or None where the call failed."""
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        return self.answer


def test_a_full_queue_refuses_at_once_and_the_server_lives_on(start: StartServer, slow_model: Path) -> None:
    options = ("--threads", "2", "--queue", "1", "--max-batch", "5000", "--max-body", "10000000", "--timeout", "50")
    server = start(slow_model, *options)
    busy = Background(server, busy_call(2000))
    wait_until(lambda: server.metric('beamtree_queue_depth{pool="searches"}') == 1, what="one that waits")
    assert server.metric('beamtree_queue_work{pool="searches"}') > 1000
    refused = server.post("/v1/recommend", {"history": [100]})
    assert (refused.status, refused.code) == (503, "overloaded")
    assert refused.headers["retry-after"] == "1"
    assert busy.answer is None, "the refusal came after the work was done, not at once"
    assert server.metric('beamtree_overloaded_total{reason="overloaded"}') == 1
    assert server.get("/healthz").status == 200
    assert server.get("/v1/items/100").status == 200
    server.kill()
    assert busy.join() is None


def test_light_requests_are_answered_while_a_heavy_call_is_under_way(start: StartServer, slow_model: Path) -> None:
    server = start(slow_model, "--max-batch", "5000", "--max-body", "10000000", "--timeout", "50")
    busy = Background(server, busy_call(2000))
    wait_until(lambda: server.metric('beamtree_queue_depth{pool="searches"}') == 1, what="a heavy call in the line")
    for _ in range(3):
        assert len(server.recommend(history=[100, 101], k=5)["items"]) == 5
    assert server.post("/v1/recommend", busy_call(100)).status == 503
    assert busy.answer is None, "the light ones waited for the heavy one"
    server.kill()
    assert busy.join() is None


def test_a_request_that_waits_too_long_is_told_so(start: StartServer, slow_model: Path) -> None:
    server = start(slow_model, "--timeout", "0.2", "--max-batch", "5000", "--max-body", "10000000")
    answer = server.post("/v1/recommend", busy_call(2000))
    assert (answer.status, answer.code) == (503, "timed_out")
    assert answer.headers["retry-after"] == "1"


def test_running_requests_finish_when_the_server_is_told_to_stop(start: StartServer, slow_model: Path) -> None:
    server = start(slow_model, "--max-batch", "5000", "--timeout", "50", "--stop-seconds", "50")
    idle = server.connect()
    ask(idle, "GET", "/healthz")
    call = Background(server, busy_call(60))
    wait_until(lambda: server.metric('beamtree_busy_threads{pool="searches"}') >= 1, what="a running search")
    server.process.send_signal(signal.SIGTERM)
    answer = call.join()
    assert answer is not None, call.failure
    assert answer.status == 200
    assert len(answer.json["results"]) == 60
    assert server.join() == 0
    idle.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE)


def test_without_time_to_stop_a_running_request_is_told_so(start: StartServer, slow_model: Path) -> None:
    server = start(
        slow_model, "--max-batch", "5000", "--max-body", "10000000", "--timeout", "50", "--stop-seconds", "0"
    )
    call = Background(server, busy_call(500))
    wait_until(lambda: server.metric('beamtree_busy_threads{pool="searches"}') >= 1, what="a running search")
    server.process.send_signal(signal.SIGTERM)
    answer = call.join()
    assert answer is not None, call.failure
    assert (answer.status, answer.code) == (503, "stopped")
    assert server.join() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--threads", "5000"), "--threads"),
        (("--stop-seconds", "-1"), "--stop-seconds"),
        (("--timeout", "nan"), "--timeout: input should be"),
        (("--watch-seconds", "inf", "--max-k", "0"), "--watch-seconds: input should be .*--max-k: input should be"),
        (("--max-connections", "1000000000"), "Lower --max-connections"),
    ],
)
def test_settings_that_cannot_be_used_are_named(
    start: StartServer, model: Path, options: tuple[str, ...], said: str
) -> None:
    with pytest.raises(RuntimeError, match=said) as failure:
        start(model, *options)
    assert "Traceback" not in str(failure.value)


def test_slow_clients_hold_nobody_up_and_are_sent_away(start: StartServer, model: Path) -> None:
    server = start(model, "--timeout", "1")
    with ExitStack() as opened:

        def connect_and_send(part: bytes) -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE)
            opened.enter_context(connection).sendall(part)
            return connection

        without_body = [connect_and_send(UNFINISHED) for _ in range(20)]
        without_headers = [connect_and_send(b"GET /healthz HTTP/1.1\r\nX-Slow"), connect_and_send(b"")]
        assert server.recommend(history=[100], k=3)["source"] == "beam"
        for connection in without_body:
            answer = read_all(connection)
            assert answer.startswith(b"HTTP/1.1 408")
            assert b"body_too_slow" in answer
        assert b"headers_too_slow" in read_all(without_headers[0])
        assert read_all(without_headers[1]) == b""


def test_empty_lines_do_not_keep_a_connection_open(start: StartServer, model: Path) -> None:
    server = start(model, "--timeout", "1")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20.0) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"\r\n")
        read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server hangs up."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_a_client_that_leaves_is_forgotten(start: StartServer, model: Path) -> None:
    server = start(model)
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE) as connection:
        connection.sendall(UNFINISHED)
        wait_for_arrival(server, 1)
    wait_for_arrival(server, 0)
    assert not [line for line in server.log_lines() if line["level"] == "error"]
    assert server.stop() == 0
    assert [line["status"] for line in server.log_lines() if line.get("route") == "/v1/recommend"] == [499]


def test_only_the_given_web_origins_may_call(start: StartServer, model: Path) -> None:
    server = start(model, "--cors-origin", "https://shop.example")
    answer = server.get("/v1/model", Origin="https://shop.example")
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "https://shop.example"
    strange = server.get("/v1/model", Origin="https://elsewhere.example")
    assert "access-control-allow-origin" not in strange.headers
    headers = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "GET"}
    refused = server.call("OPTIONS", "/v1/model", headers=headers)
    assert refused.status == 400
    assert "access-control-allow-origin" not in refused.headers


def test_no_accepted_event_is_lost_by_a_sudden_death(start: StartServer, model: Path, tmp_path: Path) -> None:
    store = tmp_path / "events.sqlite"
    server = start(model, "--events", str(store))
    accepted: dict[int, list[int]] = {}

    def keep_posting(user: int) -> None:
        mine = accepted.setdefault(user, [])
        connection = server.connect()
        try:
            for item in range(100, 160):
                body = json.dumps({"events": [{"user_id": user, "item_id": item}]}).encode()
                if ask(connection, "POST", "/v1/events", body=body).status == 200:
                    mine.append(item)
        except (OSError, HTTPException):  # the server is dead; an answer that was cut short is no acceptance
            return
        finally:
            connection.close()

    clients = [threading.Thread(target=keep_posting, args=(user,)) for user in range(6)]
    for client in clients:
        client.start()
    wait_until(lambda: sum(len(items) for items in accepted.values()) >= 60, what="some accepted events")
    server.kill()
    for client in clients:
        client.join(DEADLINE)

    again = start(model, "--events", str(store))
    assert all(accepted.values())
    for user, items in accepted.items():
        rest = again.recommend(user_id=user, k=60, exclude_seen=True)["items"]
        seen = set(range(100, 160)) - {item["item_id"] for item in rest}
        assert set(items) <= seen
        assert len(seen) <= len(items) + 1, "only the event that was under way may have been taken besides"
    assert again.post("/v1/events", {"events": [{"user_id": 0, "item_id": 100}]}).status == 200


def test_servers_that_share_a_store_learn_from_each_other(start: StartServer, model: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "events.sqlite")
    one, other = start(model, "--events", store), start(model, "--events", store)
    one.post("/v1/events", {"events": [{"user_id": "u", "item_id": 100}]})
    wait_until(lambda: bool(other.recommend(user_id="u")["user_known"]), what="the other server to hear of it")
    other.post("/v1/events", {"events": [{"user_id": "u", "item_id": 101}]})
    wait_until(lambda: one.recommend(user_id="u")["history_used"] == 2, what="the first server to hear of it")
    with sqlite3.connect(store) as connection:
        rows = connection.execute("SELECT user, item FROM events ORDER BY id").fetchall()
    connection.close()
    assert rows == [("u", 100), ("u", 101)]


@pytest.mark.parametrize("says_histories", [False, True])
def test_the_log_is_json_and_keeps_histories_to_itself(
    start: StartServer, tmp_path: Path, says_histories: bool
) -> None:
    save_model(tmp_path / "model", 60, text_ids=True)
    options = ("--events", str(tmp_path / "events.sqlite"), *(["--log-histories"] if says_histories else []))
    server = start(tmp_path / "model", *options)
    named = {"X-Request-ID": "call-17"}
    asked = server.call(
        "POST",
        "/v1/recommend",
        body=json.dumps({"history": ["i/100", "i/131", "secret-item"], "exclude": ["i/144"]}).encode(),
        headers=named,
    )
    assert asked.headers["x-request-id"] == "call-17"
    server.post("/v1/recommend", {"user_id": "secret-person"})
    server.post("/v1/recommend", {"history": ["secret-item", 5], "kay": "secret-word"})
    server.post("/v1/recommend", {"history": ["secret-item"], "unknown": "refuse"})
    server.post("/v1/events", {"events": [{"user_id": "secret-person", "item_id": "i/120"}]})
    assert server.get("/v1/items/i%2F120/similar").json["item_id"] == "i/120"
    assert server.get("/v1/items/i%2F120").json["item_id"] == "i/120"
    assert server.stop() == 0
    lines = server.log_lines()
    calls = [line for line in lines if line["logger"] == "beamtree.serving.access"]
    assert [(line["route"], line["status"]) for line in calls] == [
        ("/v1/recommend", 200),
        ("/v1/recommend", 200),
        ("/v1/recommend", 422),
        ("/v1/recommend", 422),
        ("/v1/events", 200),
        ("/v1/items/{item_id}/similar", 200),
        ("/v1/items/{item_id}", 200),
    ]
    assert calls[0]["request_id"] == "call-17"
    text = server.log.read_text()
    assert ("secret-item" in text) == says_histories
    assert ("secret-person" in text) == says_histories
    assert "secret-word" not in text
    assert "i/144" not in text
    if says_histories:
        assert calls[0]["people"] == [{"history": ["i/100", "i/131", "secret-item"]}]


def test_nothing_is_served_where_nothing_can_be(model: Path, tmp_path: Path) -> None:
    def serve_in_vain(**settings: Any) -> None:
        serve(ServerSettings(**({"model": model, "port": 0} | settings)), log=None, announce=pytest.fail)

    with pytest.raises(ArtefactError, match=r"manifest\.json is missing"):
        serve_in_vain(model=tmp_path / "nowhere")
    (tmp_path / "text.sqlite").write_bytes(b"this is no database at all, whatever its name says" * 100)
    with pytest.raises(DataError, match="cannot be used as a store of events"):
        serve_in_vain(events=tmp_path / "text.sqlite")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="Choose another --port"):
        serve_in_vain(port=taken.getsockname()[1])
    with pytest.raises(InputError, match="Cannot listen on no-such-host"):
        serve_in_vain(host="no-such-host.invalid")
