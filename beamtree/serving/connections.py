"""Connections that cannot be held open by doing nothing, nor filled with headers without end."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from beamtree.serving.limits import HEADER_BYTES

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PatientProtocol(HttpToolsProtocol):
    """HTTP/1.1 in which headers have a time and a size limit.

    Bodies have limits of their own where they are read, and uvicorn closes connections that idle between requests.
    """

    header_seconds = 15.0
    _awaits_headers = True
    _headers_due: asyncio.TimerHandle | None = None
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request."""
        super().connection_made(transport)
        self._start_clock()

    def data_received(self, data: bytes) -> None:
        """Feed the parser; 431 where headers do not end."""
        if self.timeout_keep_alive_task is not None:  # uvicorn stops that clock for anything, even an empty line
            self._awaits_headers = True
            self._header_bytes = 0
        super().data_received(data)
        if not self._awaits_headers:
            return
        if self._headers_due is None:
            self._start_clock()
        self._header_bytes += len(data)
        if self._header_bytes > HEADER_BYTES and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """A request has begun; most often all of it is there, else its headers have their time from now."""
        super().on_message_begin()
        self._stop_clock()
        self._awaits_headers = True
        self._header_bytes = 0

    def on_headers_complete(self) -> None:
        """The headers are here."""
        self._awaits_headers = False
        self._stop_clock()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._stop_clock()
        super().connection_lost(exc)

    def _start_clock(self) -> None:
        self._headers_due = self.loop.call_later(self.header_seconds, self._give_up)

    def _stop_clock(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def protocol_waiting(seconds: float) -> type[PatientProtocol]:
    """The protocol with so much patience for headers."""
    return type("Protocol", (PatientProtocol,), {"header_seconds": seconds})
