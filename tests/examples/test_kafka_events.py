"""The Kafka example against a real server, with a consumer that behaves as confluent_kafka's does."""

import importlib.util
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from urllib.error import HTTPError

import pytest

from tests.serving.models import save_model
from tests.serving.server import Server

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kafka_events.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("kafka_events", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda _: None))
    return module


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    save_model(tmp_path / "model", 60)
    running = Server(tmp_path / "model", "--events", str(tmp_path / "events.sqlite"), log=tmp_path / "log")
    yield running
    running.stop()


@dataclass(frozen=True)
class Message:
    """A message as confluent_kafka gives it."""

    number: int
    content: bytes | None
    fault: str | None = None

    def topic(self) -> str:
        return "clicks"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self.number

    def value(self) -> bytes | None:
        return self.content

    def error(self) -> str | None:
        return self.fault


class Finished(Exception):
    """There is nothing more to read."""


@dataclass
class Consumer:
    """Reads a partition from the committed offset on, so many messages at a time; at its end it stops the loop."""

    partition: list[Message]
    batch: int
    committed: int = 0
    position: int = 0
    crashes_before_commit: bool = False
    commits: list[int] = field(default_factory=list)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        assert num_messages >= self.batch
        assert timeout > 0
        if self.position == len(self.partition):
            raise Finished
        first, self.position = self.position, min(self.position + self.batch, len(self.partition))
        return self.partition[first : self.position]

    def commit(self, *, asynchronous: bool = True) -> None:
        assert not asynchronous
        if self.crashes_before_commit:
            raise Finished
        self.committed = self.position
        self.commits.append(self.committed)


def event(number: int) -> Message:
    return Message(number, b'{"user_id": 5, "item_id": %d, "timestamp": %d}' % (100 + number, number))


def messages(number: int) -> list[Message]:
    return [event(index) for index in range(number)]


def run(example: ModuleType, consumer: Consumer, server: Server) -> None:
    with pytest.raises(Finished):
        example.run(consumer, f"http://127.0.0.1:{server.port}")


def stored(server: Server) -> int:
    """How many events the server has of the user."""
    return int(server.recommend(user_id=5)["history_used"])


def test_events_arrive_and_are_committed_batch_by_batch(example: ModuleType, server: Server) -> None:
    consumer = Consumer(messages(7), batch=3)
    run(example, consumer, server)
    assert consumer.commits == [3, 6, 7]
    assert stored(server) == 7


def test_what_is_read_again_after_a_crash_is_stored_once(example: ModuleType, server: Server) -> None:
    crashing = Consumer(messages(7), batch=3, crashes_before_commit=True)
    run(example, crashing, server)
    assert (crashing.committed, stored(server)) == (0, 3)
    again = Consumer(messages(7), batch=5)  # other batches than before
    run(example, again, server)
    assert (again.committed, stored(server)) == (7, 7)


def test_a_message_that_nobody_can_take_is_told_and_skipped(
    example: ModuleType, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = (b"{", None, b'{"user_id": 5}', b'{"user_id": 5, "item_id": "x"}')
    bad = [Message(10 + index, content) for index, content in enumerate(contents)]
    consumer = Consumer([event(0), *bad, event(14)], batch=10)
    run(example, consumer, server)
    assert stored(server) == 2
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in told] == [f"skipped clicks-3-{number}" for number in (10, 11, 12, 13)]
    assert "wrong_id_type" in told[-1]


def test_a_busy_server_is_asked_again_and_a_wrong_address_stops_before_a_commit(example: ModuleType) -> None:
    seen: list[tuple[str, str]] = []
    statuses = [503, 500, 200, 404]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.headers["Idempotency-Key"], body.decode()))
            self.send_response(statuses[len(seen) - 1])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as busy:
        thread = threading.Thread(target=busy.serve_forever)
        thread.start()
        consumer = Consumer(messages(2), batch=2)
        with pytest.raises(HTTPError, match="404"):
            example.run(consumer, f"http://127.0.0.1:{busy.server_port}")
        busy.shutdown()
        thread.join()
    assert [key for key, _ in seen] == ["clicks-3-0"] * 3 + ["clicks-3-1"]
    assert len({body for _, body in seen[:3]}) == 1
    assert consumer.commits == []


def test_a_server_that_comes_later_gets_everything(
    example: ModuleType, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits: list[float] = []
    ask = example.urlopen

    def no_route_yet(*arguments: object, **named: object) -> object:
        if len(waits) < 2:
            raise ConnectionRefusedError("connection refused")
        return ask(*arguments, **named)

    monkeypatch.setattr(example, "urlopen", no_route_yet)
    monkeypatch.setattr(example, "time", SimpleNamespace(sleep=waits.append))
    run(example, Consumer(messages(2), batch=2), server)
    assert waits == [1, 1]
    assert capsys.readouterr().err.count("trying again: connection refused") == 2
    assert stored(server) == 2


def test_an_error_of_kafka_ends_it_without_a_commit(example: ModuleType, server: Server) -> None:
    consumer = Consumer([*messages(1), Message(1, None, fault="broker is gone")], batch=2)
    with pytest.raises(SystemExit, match="broker is gone"):
        example.run(consumer, f"http://127.0.0.1:{server.port}")
    assert consumer.commits == []
