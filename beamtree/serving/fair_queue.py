"""A queue of calls that is fair between connections, by work. No threads, no clocks.

A call consists of parts, each with its work. The virtual time of a connection is the work done for it; the next part
comes from the connection whose virtual time would be the earliest after that part. Heavy connections thus alternate
part by part, and an occasional small call does not wait for the rest of a large one. This is fair queueing (Demers,
Keshav, Shenker, 1989).
"""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

FORGET_ABOVE = 64


@dataclass(eq=False, kw_only=True)
class WaitingCall:
    """A queued call. works: of each part; key: parts with the same key may share a batch, None: never; begun: parts
    that were taken.
    """

    connection: Hashable
    key: Hashable
    works: Sequence[float]
    begun: int = 0


Call = TypeVar("Call", bound=WaitingCall)


@dataclass(frozen=True, eq=False)
class Slice(Generic[Call]):
    """The parts of a call from `first` up to `end`, which are processed in one batch."""

    call: Call
    first: int
    end: int

    @property
    def work(self) -> float:
        """The work of these parts."""
        return sum(self.call.works[self.first : self.end])


class FairQueue(Generic[Call]):
    """Calls of all connections. work: of all parts that were not taken yet."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, deque[Call]] = {}
        self._given: dict[Hashable, float] = {}
        self._now = 0.0
        self.work = 0.0

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))

    def is_full_for(self, work: float, *, room: float) -> bool:
        """Whether a call of this work should be rejected, where the queue has this room.

        It is accepted while less work is queued than there is room, or if its work is at most an equal share of the
        room: small calls are not rejected because of large ones.
        """
        return self.work >= room and work > room / (1 + len(self))

    def add(self, call: Call) -> None:
        """Append a call to those of its connection."""
        if call.connection not in self._calls:
            self._calls[call.connection] = deque()
            self._given[call.connection] = max(self._given.get(call.connection, 0.0), self._now)
        self._calls[call.connection].append(call)
        self.work += sum(call.works)

    def discard(self, call: Call) -> None:
        """Forget what has not been taken of a call, if anything."""
        line = self._calls.get(call.connection, ())
        if call in line:
            self.work -= sum(call.works[call.begun :])
            self._leave(call)

    def next_work(self) -> float:
        """The work of the next part; IndexError where the queue is empty."""
        return self._next_part()[1]

    def take(self, most: float) -> list[Slice[Call]]:
        """The next parts, in fair order, while they have the same key and at most `most` work in all; at least one.

        Parts of one call come as one slice.
        """
        taken: dict[Call, int] = {}
        key, work = None, 0.0
        while self._calls:
            call, part = self._next_part()
            if taken and (key is None or call.key != key or work + part > most):
                break
            key, work = call.key, work + part
            taken.setdefault(call, call.begun)
            self._give(call, part)
        self._forget()
        return [Slice(call, first, call.begun) for call, first in taken.items()]

    def _next_part(self) -> tuple[Call, float]:
        heads = [line[0] for line in self._calls.values()]
        ends = [self._given[call.connection] + call.works[call.begun] for call in heads]
        call = heads[ends.index(min(ends))]
        return call, call.works[call.begun]

    def _give(self, call: Call, part: float) -> None:
        """Take the next part of a call. Virtual time advances by an equal share for each active connection."""
        sharing = sum(given > self._now or connection in self._calls for connection, given in self._given.items())
        self._given[call.connection] += part
        self._now = max(self._now + part / sharing, min(self._given[connection] for connection in self._calls))
        self.work -= part
        call.begun += 1
        if call.begun == len(call.works):
            self._leave(call)

    def _leave(self, call: Call) -> None:
        line = self._calls[call.connection]
        line.remove(call)
        if not line:
            del self._calls[call.connection]

    def _forget(self) -> None:
        """Forget connections that wait for nothing and have had no more than their share."""
        if not self._calls:
            self._given.clear()
            self._now = self.work = 0.0
        elif len(self._given) > 2 * len(self._calls) + FORGET_ABOVE:
            self._given = {
                connection: given
                for connection, given in self._given.items()
                if connection in self._calls or given > self._now
            }
