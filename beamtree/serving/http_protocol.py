"""HTTP over one connection, with timeouts and bounds that uvicorn lacks: headers and trailers, bodies, slow readers.

The only file that extends what uvicorn does not document, hence the range of its versions in pyproject.toml. Only
methods that others define are extended: the callbacks of asyncio (`connection_made`, `data_received`, `pause_writing`
...), those of the parser (`on_message_begin`, `on_headers_complete` ...), and `send_400_response`.
"""

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from beamtree.serving.api_error import ApiError, headers_too_large
from beamtree.serving.connections import Connections, Reason
from beamtree.serving.limits import HEADER_BYTES, PIPELINED_REQUESTS
from beamtree.serving.written_answers import json_text

CONNECTION = "connection"
"""Key under which the state of a request's scope holds its connection."""


class _Transport:
    """A transport that ignores writes after it was closed, where uvloop's would raise an error."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _TooManyRequests(Exception):
    """Over one connection, before they could be answered."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection, and since when its client keeps the server waiting."""

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
        self._body_grew = False
        self._header_bytes = 0
        self._request_due_since: float | None = None
        self._unread_since: float | None = None
        self._closing_since: float | None = None

    @property
    def is_at_work(self) -> bool:
        """Whether a request is being answered."""
        return self._requests > 0

    def admit(self) -> bool:
        """Whether the server has room for this client."""
        return self.registry.admit(self)

    def answering(self) -> None:
        """The application has started its response."""
        self._is_answering = True

    def answered(self) -> None:
        """The application is done with a request. The timeout for the rest of its body, or for another, starts now."""
        self._is_answering = False
        self._requests -= 1
        self.registry.body_arrived(self)
        self._request_due_since = self.loop.time() if self._is_in_body or self._is_in_headers else None

    def overdue(self, now: float, *, seconds: float) -> Reason | None:
        """What the client has failed to do within `seconds`, if anything."""
        if self._closing_since is None and self.transport.is_closing():
            self._closing_since = now  # closed, but what was written last has not gone out yet
        for since in (self._unread_since, self._closing_since):
            if since is not None and now - since > seconds:
                return "slow_reader"
        if self._request_due_since is None or self.is_at_work or self._closing_since is not None:
            return None
        return "slow_request" if now - self._request_due_since > seconds else None

    def drop(self, reason: Reason) -> None:
        """Close the connection; with an error if the client has started to send headers."""
        if reason == "slow_request" and self._is_in_headers:
            self._fail(ApiError(408, "headers_too_slow", "The headers did not arrive in time. Send them at once."))
        else:
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request."""
        super().connection_made(cast("asyncio.Transport", _Transport(transport)))
        self._request_due_since = self.loop.time()
        self.registry.enter(self)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; 431 where too much comes that is no body: headers, trailers, extensions of chunks."""
        began_in_body, self._headers_ended, self._body_grew = self._is_in_body, False, False
        super().data_received(data)
        if not self._is_in_body and self._request_due_since is None and not self.is_at_work:
            self._request_due_since = self.loop.time()  # uvicorn would wait for ever after an empty line
        has_body = self._body_grew if self._is_in_body else began_in_body
        self._header_bytes = 0 if has_body or self._headers_ended else self._header_bytes + len(data)
        if self._header_bytes > HEADER_BYTES and not self.transport.is_closing():
            self.registry.count_dropped("headers_too_large")
            self._fail(headers_too_large())

    def on_message_begin(self) -> None:
        """A request starts; where too many wait for their answers, the parser stops here."""
        if self._requests >= PIPELINED_REQUESTS:
            raise _TooManyRequests
        super().on_message_begin()
        self._is_in_headers = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, which is kept, or a trailer, which nobody reads."""
        if not self._is_in_body:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Part of a body has arrived, which is held if a request is being answered."""
        self._body_grew = True
        super().on_body(body)
        if self.is_at_work:
            self.registry.body_arrives(self, num_bytes=len(body))

    def on_headers_complete(self) -> None:
        """The headers have arrived: the application takes over."""
        self._is_in_headers, self._headers_ended, self._is_in_body = False, True, True
        self._header_bytes, self._request_due_since = 0, None
        super().on_headers_complete()
        self._requests += 1

    def on_message_complete(self) -> None:
        """The body has arrived."""
        self._is_in_body = False
        self._request_due_since = None
        self.registry.body_arrived(self)
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with an error in the common shape."""
        self.registry.count_dropped("pipelined" if self._requests >= PIPELINED_REQUESTS else "not_http")
        self._fail(ApiError(400, "not_http", f"{msg} Expected HTTP/1.1."))

    def pause_writing(self) -> None:
        """The write buffer is full: the client does not read."""
        super().pause_writing()
        self._unread_since = self.loop.time()
        self.answer_is_read.clear()
        self.registry.answer_stalled(self, unread=self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client has read most of the buffer."""
        super().resume_writing()
        self._unread_since = None
        self.answer_is_read.set()
        self.registry.answer_read(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self.is_gone = True
        super().connection_lost(exc)
        self._state.clear()  # breaks a reference cycle, so that the buffers are freed at once
        self.answer_is_read.set()
        self.registry.leave(self)

    def _fail(self, error: ApiError) -> None:
        """Answer without the application, unless another answer is due or being written, and close."""
        if not self._is_answering and self._requests <= 1:
            self.transport.write(_response(error))
        self.transport.close()


def guarded_protocol(connections: Connections) -> type[GuardedProtocol]:
    """The protocol class of a server with these connections."""
    return type("Protocol", (GuardedProtocol,), {"registry": connections})


def _response(error: ApiError) -> bytes:
    body = json_text(error.body())
    lines = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
