"""The application without a server: failures, and what belongs to no route."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from beamtree.serving.app import create_app
from beamtree.serving.run import build_service
from beamtree.serving.service import Service
from beamtree.serving.settings import ServerSettings


@pytest.fixture
def service(shared_folder: Path) -> Iterator[Service]:
    made = build_service(ServerSettings(model=shared_folder / "model"), log=None)
    yield made
    made.close()


def call(app: ASGIApp, method: str, path: str, *, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to one request."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"x-request-id", b"call-17")]
    scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "raw_path": path.encode()}
    scope |= {"query_string": b"", "headers": headers, "client": ("127.0.0.1", 1), "root_path": "", "scheme": "http"}
    scope |= {"server": ("127.0.0.1", 8000), "http_version": "1.1"}

    async def ask() -> None:
        await app(scope, receive, send)
        await asyncio.sleep(0)  # the line in the log comes after the answer

    asyncio.run(ask())
    [start, *parts] = sent
    headers_sent = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], headers_sent, b"".join(part["body"] for part in parts)


@pytest.mark.parametrize(
    ("method", "path", "body"), [("GET", "/v1/items", b""), ("POST", "/v1/recommend", b'{"history": [100]}')]
)
def test_a_failure_is_answered_in_the_shape_of_all_errors(
    service: Service,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: bytes,
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret history")

    monkeypatch.setattr(service, "look_up", fail)
    monkeypatch.setattr(service, "recommend", fail)
    with caplog.at_level(logging.INFO):
        status, headers, said = call(create_app(service), method, path, body=body)
    assert (status, headers["content-type"], headers["x-request-id"]) == (500, "application/json", "call-17")
    error = json.loads(said)["error"]
    assert (error["code"], error["details"]) == ("internal_error", [])
    assert "call-17" in error["message"]
    assert b"secret" not in said
    [failure] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert failure.request_id == "call-17"  # type: ignore[attr-defined]
    [line] = [record for record in caplog.records if record.name == "beamtree.serving.access"]
    assert line.status == 500  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/", 200),
        ("HEAD", "/page.js", 200),
        ("POST", "/", 405),
        ("GET", "/index.html", 404),
        ("PUT", "/a", 404),
    ],
)
def test_the_files_of_the_page_can_only_be_read(service: Service, method: str, path: str, status: int) -> None:
    answered, headers, said = call(create_app(service), method, path)
    assert answered == status
    if status >= 400:
        assert json.loads(said)["error"]["code"] in ("no_such_address", "wrong_method")
    if status == 405:
        assert set(headers["allow"].split(", ")) == {"GET", "HEAD"}
