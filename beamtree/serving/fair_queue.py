"""Who is next: a line of calls that is shared fairly between connections, whatever they ask for. No threads, no clocks.

A call consists of parts, each with its work. A connection's time is the work that it has been given; of all
connections that wait, the next part comes from the one whose time would be the earliest after that part. So
connections with much to do take turns part by part, and a connection that asks for little, now and then, does not wait
for the rest of what others have asked for. This is fair queueing (Demers, Keshav, Shenker, 1989).
"""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

FORGET_ABOVE = 64


@dataclass(eq=False, kw_only=True)
class WaitingCall:
    """works: the work of each part; key: parts with one key may be handled together, with None never; begun: parts
    that were taken.
    """

    connection: Hashable
    key: Hashable
    works: Sequence[float]
    begun: int = 0


Call = TypeVar("Call", bound=WaitingCall)


@dataclass(frozen=True, eq=False)
class Slice(Generic[Call]):
    """The parts of a call from `first` up to `end`, which are handled at once."""

    call: Call
    first: int
    end: int

    @property
    def work(self) -> float:
        """The work of these parts."""
        return sum(self.call.works[self.first : self.end])


class FairQueue(Generic[Call]):
    """Calls of all connections. work: what has not been taken of them."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, deque[Call]] = {}
        self._given: dict[Hashable, float] = {}
        self._now = 0.0
        self.work = 0.0

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))

    def is_full_for(self, work: float, *, room: float) -> bool:
        """Whether a call of so much work should not enter, where there is room for so much.

        It enters while less than that waits, or while its own work is no more than an equal share of the room: who asks
        for little is not turned away because others have asked for much.
        """
        return self.work >= room and work > room / (1 + len(self))

    def add(self, call: Call) -> None:
        """Put a call at the end of its connection's line."""
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
        """The work of the next part; IndexError where nothing waits."""
        return self._next_part()[1]

    def take(self, most: float) -> list[Slice[Call]]:
        """The next parts, in fair order, as long as they have one key and together at most so much work; at least one.

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
        """Take the next part of a call. Time goes on by an equal share for each that waits or is ahead of its time."""
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
        """Drop the times of connections that wait for nothing and have had no more than their share."""
        if not self._calls:
            self._given.clear()
            self._now = self.work = 0.0
        elif len(self._given) > 2 * len(self._calls) + FORGET_ABOVE:
            self._given = {
                connection: given
                for connection, given in self._given.items()
                if connection in self._calls or given > self._now
            }
