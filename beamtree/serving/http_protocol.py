"""HTTP over one connection, with an eye on what its client owes: headers that arrive, answers that are read.

Of uvicorn's protocol only the parts that others define are extended: the callbacks of asyncio (`connection_made`,
`data_received`, `pause_writing` ...), those of the parser (`on_message_begin`, `on_headers_complete` ...), and the one
method with which it answers what is not HTTP.
"""

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from beamtree.serving.api_error import ApiError, headers_too_large
from beamtree.serving.connections import Connections, Reason
from beamtree.serving.limits import HEADER_BYTES
from beamtree.serving.written_answers import json_text

CONNECTION = "connection"
"""Where an application finds the connection of a request, and takes it out: in the state of its scope."""


class _Transport:
    """A transport that takes, and forgets, what is written after its end: uvloop's would raise an error."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GuardedProtocol(HttpToolsProtocol):
    """One connection: when its client began to owe something, and whether it has gone."""

    registry: ClassVar[Connections]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._state = {**app_state, CONNECTION: self}
        super().__init__(config, server_state, self._state, _loop)
        self.is_gone = False
        self.answer_is_read = asyncio.Event()
        self.answer_is_read.set()
        self._requests = 0
        self._is_answering = False
        self._is_in_headers = False
        self._is_in_body = False
        self._headers_ended = False
        self._header_bytes = 0
        self._request_due_since: float | None = None
        self._unread_since: float | None = None
        self._closing_since: float | None = None

    @property
    def is_at_work(self) -> bool:
        """Whether a request is being answered."""
        return self._requests > 0

    def admit(self) -> bool:
        """Whether this is one of the clients that the server has room for."""
        return self.registry.admit(self)

    def answering(self) -> None:
        """The application has begun to answer a request."""
        self._is_answering = True

    def answered(self) -> None:
        """The application is done with a request. What is left of its body, or a next one, has its time from now."""
        self._is_answering = False
        self._requests -= 1
        self._request_due_since = self.loop.time() if self._is_in_body or self._is_in_headers else None

    def overdue(self, now: float, *, seconds: float) -> Reason | None:
        """What the client has failed to do within so many seconds, if anything."""
        if self._closing_since is None and self.transport.is_closing():
            self._closing_since = now  # closed, but what was written last has not gone out yet
        for since in (self._unread_since, self._closing_since):
            if since is not None and now - since > seconds:
                return "slow_reader"
        if self._request_due_since is None or self.is_at_work or self._closing_since is not None:
            return None
        return "slow_request" if now - self._request_due_since > seconds else None

    def drop(self, reason: Reason) -> None:
        """Hang up; a client that has begun to send headers is told why."""
        if reason == "slow_request" and self._is_in_headers:
            self._refuse(ApiError(408, "headers_too_slow", "The headers did not arrive in time. Send them at once."))
        else:
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request."""
        super().connection_made(cast("asyncio.Transport", _Transport(transport)))
        self._request_due_since = self.loop.time()
        self.registry.enter(self)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; 431 where headers do not end."""
        began_in_body, self._headers_ended = self._is_in_body, False
        super().data_received(data)
        if self._is_in_body:
            return
        if self._request_due_since is None and not self.is_at_work:  # also for an empty line: uvicorn waits without end
            self._request_due_since = self.loop.time()
        self._header_bytes = 0 if began_in_body or self._headers_ended else self._header_bytes + len(data)
        if self._header_bytes > HEADER_BYTES and not self.transport.is_closing():
            self.registry.count_dropped("headers_too_large")
            self._refuse(headers_too_large())

    def on_message_begin(self) -> None:
        """A request begins; most often all of it is there."""
        super().on_message_begin()
        self._is_in_headers = True

    def on_headers_complete(self) -> None:
        """The headers are here: the application takes over."""
        self._is_in_headers, self._headers_ended, self._is_in_body = False, True, True
        self._header_bytes, self._request_due_since = 0, None
        super().on_headers_complete()
        self._requests += 1

    def on_message_complete(self) -> None:
        """The body is here too."""
        self._is_in_body = False
        self._request_due_since = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in the shape of all refusals."""
        self.registry.count_dropped("not_http")
        self._refuse(ApiError(400, "not_http", f"{msg} Expected HTTP/1.1."))

    def pause_writing(self) -> None:
        """More waits to be sent than the system takes: the client has to read."""
        super().pause_writing()
        self._unread_since = self.loop.time()
        self.answer_is_read.clear()
        self.registry.answer_waits(self, unread=self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client has read most of it."""
        super().resume_writing()
        self._unread_since = None
        self.answer_is_read.set()
        self.registry.answer_read(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self.is_gone = True
        super().connection_lost(exc)
        self._state.clear()  # or the connection and its buffers would live until the garbage collector finds them
        self.answer_is_read.set()
        self.registry.leave(self)

    def _refuse(self, refusal: ApiError) -> None:
        """Answer without the application, unless another answer is due or being written, and close."""
        if not self._is_answering and self._requests <= 1:
            self.transport.write(_plain_answer(refusal))
        self.transport.close()


def guarded_protocol(connections: Connections) -> type[GuardedProtocol]:
    """The protocol of a server whose connections are kept in order by `connections`."""
    return type("Protocol", (GuardedProtocol,), {"registry": connections})


def _plain_answer(refusal: ApiError) -> bytes:
    body = json_text(refusal.body())
    lines = (
        f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
