"""What the server relies on of uvicorn beyond its documented interface. It is all in one file, for tested versions.

Each of these tests fails when uvicorn changes what that file extends; test_connections.py shows what it is for.
"""

import ast
import asyncio
import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from beamtree import serving
from beamtree.serving import http_protocol
from beamtree.serving.connections import ConnectionLimits, Connections
from beamtree.serving.http_protocol import GuardedProtocol, guarded_protocol

SERVING = Path(serving.__file__).parent
PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
CALLED_BY_THE_PARSER = ("on_message_begin", "on_headers_complete", "on_message_complete")
FRAMEWORKS = ("uvicorn", "starlette", "fastapi")


def extended() -> list[str]:
    """The methods of uvicorn's protocol that ours extends."""
    return [name for name in vars(GuardedProtocol) if inspect.isfunction(vars(HttpToolsProtocol).get(name))]


def names_of(method: object) -> list[str]:
    return list(inspect.signature(method).parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", extended())
def test_what_is_extended_takes_the_same_arguments(name: str) -> None:
    assert names_of(vars(GuardedProtocol)[name]) == names_of(vars(HttpToolsProtocol)[name])


def test_what_is_extended_is_still_there() -> None:
    called_by_asyncio = {name for name in dir(asyncio.Protocol) if not name.startswith("__")}
    hooks = {name for name in vars(GuardedProtocol) if name in called_by_asyncio or name.startswith("on_")}
    assert hooks | {"__init__", "send_400_response"} == set(extended())
    assert set(CALLED_BY_THE_PARSER) <= hooks


class Pipe(asyncio.Transport):
    """A connection of which only the end is of interest."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0


def test_a_request_goes_through_every_hook() -> None:
    calls: list[str] = []

    async def application(_scope: object, _receive: object, _send: object) -> None:
        raise AssertionError("the loop ends before it is called")

    async def talk() -> Pipe:
        connections = Connections(
            ConnectionLimits(clients=1, seconds=10.0, unread_bytes=1, arriving_bytes=1),
            count_dropped=lambda reason: calls.append(reason),
        )
        config = uvicorn.Config(application, http=guarded_protocol(connections), log_config=None, lifespan="off")
        config.load()
        made = config.http_protocol_class(config=config, server_state=ServerState(), app_state={})  # type: ignore[call-arg]
        assert isinstance(made, GuardedProtocol)
        pipe = Pipe()
        made.connection_made(pipe)
        assert made.loop is asyncio.get_running_loop()
        assert connections.open == 1
        made.data_received(b"POST / HTTP/1.1\r\nHost: x\r\n")
        at_work = [made.is_at_work]
        made.data_received(b"Content-Length: 1\r\n\r\n")
        at_work.append(made.is_at_work)
        assert at_work == [False, True]
        assert made.overdue(made.loop.time() + 100.0, seconds=10.0) is None, "the application has the body to wait for"
        made.data_received(b"a")
        made.pause_writing()
        assert made.overdue(made.loop.time() + 100.0, seconds=10.0) == "slow_reader"
        made.resume_writing()
        made.data_received(b"no HTTP\r\n\r\n")
        assert calls == ["not_http"]
        assert pipe.is_closed
        made.connection_lost(None)
        assert (made.is_gone, connections.open) == (True, 0)
        begun = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert len(begun) == 1
        begun[0].cancel()
        await asyncio.wait(begun)
        return pipe

    assert asyncio.run(talk()).written.startswith(b"HTTP/1.1 400 ")


def test_the_version_is_one_of_those_that_are_tested() -> None:
    serve = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]["serve"]
    [wanted] = [requirement for text in serve if (requirement := Requirement(text)).name == "uvicorn"]
    assert {part.operator for part in wanted.specifier} == {">=", "<"}
    assert wanted.specifier.contains(version("uvicorn"))


def test_no_other_file_extends_a_framework_or_imports_what_is_inside_uvicorn() -> None:
    offences = []
    for path in set(SERVING.rglob("*.py")) - {Path(http_protocol.__file__)}:
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        taken = set(FRAMEWORKS)
        for node in nodes:
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            offences += [f"{path.name} imports {module}" for module in modules if module.startswith("uvicorn.")]
            if isinstance(node, ast.ImportFrom) and modules[0].split(".")[0] in FRAMEWORKS:
                taken |= {name.asname or name.name for name in node.names}
        for node in nodes:
            bases = [ast.unparse(base).split(".")[0] for base in node.bases] if isinstance(node, ast.ClassDef) else []
            offences += [f"{path.name} extends {base}" for base in bases if base in taken]
    assert not offences
