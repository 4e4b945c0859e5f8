"""Limits on connections: number of clients, time for a request to arrive, bytes of unread answers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from beamtree.serving.limits import SPARE_CONNECTIONS

Reason = Literal[
    "idle_newcomer", "slow_request", "slow_reader", "headers_too_large", "pipelined", "not_http", "stopped"
]

LOOKS_PER_WAIT = 4
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 1.0


@dataclass(frozen=True)
class ConnectionLimits:
    """What the connections of a server may take.

    clients: connections that have sent a request. seconds: for the headers of a request to arrive, and for an answer
    to be read. unread_bytes: of all answers together that clients have not read yet. arriving_bytes: of all bodies
    together that have not arrived in full.
    """

    clients: int
    seconds: float
    unread_bytes: int
    arriving_bytes: int


class Connection(Protocol):
    """One connection, as far as the limits are concerned."""

    @property
    def is_at_work(self) -> bool:
        """Whether a request is being answered."""

    def overdue(self, now: float, *, seconds: float) -> Reason | None:
        """What the client has failed to do within `seconds`, if anything."""

    def drop(self, reason: Reason) -> None:
        """Hang up."""


class Connections:
    """The open connections of a server. arriving_bytes: of bodies that have not arrived in full.

    A connection becomes a client with its first request, if fewer than the allowed number of clients are connected;
    until then it is a newcomer. Idle sockets are newcomers and thus keep no client out. When more than
    `SPARE_CONNECTIONS` are open beyond the allowed clients, the newcomer idle for longest is dropped. Clients stay.
    """

    def __init__(self, limits: ConnectionLimits, *, count_dropped: Callable[[Reason], None]) -> None:
        self._limits = limits
        self.count_dropped = count_dropped
        self._newcomers: dict[Connection, None] = {}
        self._clients: set[Connection] = set()
        self._unread: dict[Connection, int] = {}
        self._arriving: dict[Connection, int] = {}
        self.arriving_bytes = 0
        self._next_look: asyncio.TimerHandle | None = None
        self._pause = min(max(limits.seconds / LOOKS_PER_WAIT, SHORTEST_PAUSE), LONGEST_PAUSE)

    @property
    def open(self) -> int:
        """Connections that are open."""
        return len(self._newcomers) + len(self._clients)

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that clients have not read yet."""
        return sum(self._unread.values())

    def enter(self, connection: Connection) -> None:
        """A connection was made."""
        self._newcomers[connection] = None
        if self.open > self._limits.clients + SPARE_CONNECTIONS:
            silent = next((newcomer for newcomer in self._newcomers if not newcomer.is_at_work), None)
            if silent is not None:
                self._make_room(silent, "idle_newcomer")
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(self._pause, self._look)

    def admit(self, connection: Connection) -> bool:
        """Whether a connection with a request is a client, or becomes one because there is room."""
        if connection in self._newcomers and len(self._clients) < self._limits.clients:
            del self._newcomers[connection]
            self._clients.add(connection)
        return connection in self._clients

    def leave(self, connection: Connection) -> None:
        """The connection is closed."""
        self._newcomers.pop(connection, None)
        self._clients.discard(connection)
        self._unread.pop(connection, None)
        self.body_arrived(connection)

    def body_arrives(self, connection: Connection, *, num_bytes: int) -> None:
        """Part of a body has come. Where too much is held in all, the bodies that began first are dropped."""
        self._arriving[connection] = self._arriving.get(connection, 0) + num_bytes
        self.arriving_bytes += num_bytes
        while self.arriving_bytes > self._limits.arriving_bytes and len(self._arriving) > 1:
            self._make_room(next(iter(self._arriving)), "slow_request")

    def body_arrived(self, connection: Connection) -> None:
        """A body has come in full, or nobody waits for the rest."""
        self.arriving_bytes -= self._arriving.pop(connection, 0)

    def answer_stalled(self, connection: Connection, *, unread: int) -> None:
        """A client does not read. Where too much is unread in all, the connections that stalled first are dropped."""
        self._unread[connection] = unread
        while self.unread_bytes > self._limits.unread_bytes and len(self._unread) > 1:
            self._make_room(next(iter(self._unread)), "slow_reader")

    def answer_read(self, connection: Connection) -> None:
        """The client has read its answer."""
        self._unread.pop(connection, None)

    def close(self) -> None:
        """Drop all connections, whatever is left to be sent."""
        for connection in [*self._newcomers, *self._clients]:
            connection.drop("stopped")

    def _look(self) -> None:
        """Drop connections that are overdue, and check again later while any is open."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [*self._newcomers, *self._clients]:
            reason = connection.overdue(now, seconds=self._limits.seconds)
            if reason is not None:
                self.count_dropped(reason)
                connection.drop(reason)
        self._next_look = loop.call_later(self._pause, self._look) if self.open else None

    def _make_room(self, connection: Connection, reason: Reason) -> None:
        """Drop a connection and forget it at once."""
        self.leave(connection)
        self.count_dropped(reason)
        connection.drop(reason)
