"""Which connections a server keeps: so many clients, so long for a request to arrive, so much that nobody reads."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from beamtree.serving.limits import SPARE_CONNECTIONS

Reason = Literal["idle_newcomer", "slow_request", "slow_reader", "headers_too_large", "not_http", "stopped"]

LOOKS_PER_WAIT = 4
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 1.0


@dataclass(frozen=True)
class ConnectionLimits:
    """What the connections of a server may take.

    clients: connections that have asked something. seconds: for the headers of a request to arrive, and for an answer
    to be read. unread_bytes: of all answers together that wait for their readers.
    """

    clients: int
    seconds: float
    unread_bytes: int


class Connection(Protocol):
    """One connection as the rules see it."""

    @property
    def is_at_work(self) -> bool:
        """Whether a request is being answered."""

    def overdue(self, now: float, *, seconds: float) -> Reason | None:
        """What the client has failed to do within so many seconds, if anything."""

    def drop(self, reason: Reason) -> None:
        """Hang up."""


class Connections:
    """The open connections of a server.

    A connection is a newcomer until it asks something and there is room among the clients. Newcomers take no place of
    a client: sockets that stay silent keep nobody out. When more than `SPARE_CONNECTIONS` are open beyond the number
    of clients allowed, the newcomer that has been silent longest is dropped. Clients stay.
    """

    def __init__(self, limits: ConnectionLimits, *, count_dropped: Callable[[Reason], None]) -> None:
        self._limits = limits
        self.count_dropped = count_dropped
        self._newcomers: dict[Connection, None] = {}
        self._clients: set[Connection] = set()
        self._unread: dict[Connection, int] = {}
        self._next_look: asyncio.TimerHandle | None = None
        self._pause = min(max(limits.seconds / LOOKS_PER_WAIT, SHORTEST_PAUSE), LONGEST_PAUSE)

    @property
    def open(self) -> int:
        """Connections that are open."""
        return len(self._newcomers) + len(self._clients)

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that wait for their readers."""
        return sum(self._unread.values())

    def enter(self, connection: Connection) -> None:
        """Somebody has connected."""
        self._newcomers[connection] = None
        if self.open > self._limits.clients + SPARE_CONNECTIONS:
            silent = next((newcomer for newcomer in self._newcomers if not newcomer.is_at_work), None)
            if silent is not None:
                self._make_room(silent, "idle_newcomer")
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(self._pause, self._look)

    def admit(self, connection: Connection) -> bool:
        """Whether a connection that asks something is a client, or becomes one because there is room."""
        if connection in self._newcomers and len(self._clients) < self._limits.clients:
            del self._newcomers[connection]
            self._clients.add(connection)
        return connection in self._clients

    def leave(self, connection: Connection) -> None:
        """The connection is closed."""
        self._newcomers.pop(connection, None)
        self._clients.discard(connection)
        self._unread.pop(connection, None)

    def answer_waits(self, connection: Connection, *, unread: int) -> None:
        """An answer waits for its reader. Where too much waits in all, those who have kept it longest are dropped."""
        self._unread[connection] = unread
        while self.unread_bytes > self._limits.unread_bytes and len(self._unread) > 1:
            self._make_room(next(iter(self._unread)), "slow_reader")

    def answer_read(self, connection: Connection) -> None:
        """The answer is on its way to its reader."""
        self._unread.pop(connection, None)

    def close(self) -> None:
        """Hang up on everybody, whatever is left to be sent."""
        for connection in [*self._newcomers, *self._clients]:
            connection.drop("stopped")

    def _look(self) -> None:
        """Drop whoever is overdue, and look again later while anybody is there."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [*self._newcomers, *self._clients]:
            reason = connection.overdue(now, seconds=self._limits.seconds)
            if reason is not None:
                self.count_dropped(reason)
                connection.drop(reason)
        self._next_look = loop.call_later(self._pause, self._look) if self.open else None

    def _make_room(self, connection: Connection, reason: Reason) -> None:
        """Drop one to make room, which is there at once."""
        self.leave(connection)
        self.count_dropped(reason)
        connection.drop(reason)
