"""Threads for searching, and a line in front of them that never grows beyond its bound.

Jobs that wait and have the same key are handled together in one call: the busier the server, the larger the batches,
and nobody ever waits for a batch to fill.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from beamtree.serving.api_error import timed_out, too_busy

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Done(Generic[Result]):
    """What came of a job, how long it waited and how long the call ran that handled it, in seconds."""

    result: Result
    waited: float
    ran: float


@dataclass(eq=False)
class _Ticket:
    job: Any
    handle: Callable[[Sequence[Any]], Sequence[Any]]
    key: Hashable
    weight: int
    asked_at: float
    future: asyncio.Future[Done[Any]]


class SearchPool:
    """`threads` threads that take jobs in turn. At most `queue` jobs wait; one more is refused at once.

    together: the most weight of jobs with one key that are handled in one call.
    """

    def __init__(self, name: str, *, threads: int, queue: int, timeout_seconds: float, together: int = 1) -> None:
        self.name = name
        self._queue = queue
        self._timeout_seconds = timeout_seconds
        self._together = together
        self._waiting: deque[_Ticket] = deque()
        self._idle = 0
        self._is_closed = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Jobs in the line."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Threads that are at work."""
        return len(self._threads) - self._idle

    def refuse_if_full(self) -> None:
        """503 before anything is read or parsed, where a job could not even wait."""
        if len(self._waiting) >= self._queue + self._idle:
            raise too_busy(f"{self.running} searches run and {self.waiting} wait. Try again in a second.")

    async def run(self, call: Callable[[], Result]) -> Done[Result]:
        """Make a call on a thread, alone; see `submit`."""
        return await self.submit(call, handle=lambda calls: [_outcome(call) for call in calls])

    async def submit(
        self,
        job: Job,
        *,
        handle: Callable[[Sequence[Job]], Sequence[Result | BaseException]],
        key: Hashable = None,
        weight: int = 1,
    ) -> Done[Result]:
        """Wait in the line until a thread has handled the job; 503 where the line is full or the time is over.

        handle: takes one job or, if they have the same key (not None), several, and returns an outcome for each; an
        exception among the outcomes is raised here. A job whose time is over or whose client has gone is not begun.
        """
        loop = asyncio.get_running_loop()
        ticket = _Ticket(job, handle, key, weight, time.perf_counter(), loop.create_future())
        with self._changed:
            self.refuse_if_full()
            self._waiting.append(ticket)
            self._changed.notify()
        end = loop.call_later(self._timeout_seconds, self._give_up, ticket)
        try:
            return await ticket.future
        finally:
            end.cancel()
            if ticket.future.cancelled():
                self._leave(ticket)

    def close(self) -> None:
        """Let running calls finish; whatever still waits is never begun."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _give_up(self, ticket: _Ticket) -> None:
        if not ticket.future.done():
            ticket.future.set_exception(timed_out(self._timeout_seconds))
            self._leave(ticket)

    def _leave(self, ticket: _Ticket) -> None:
        with self._changed:
            if ticket in self._waiting:
                self._waiting.remove(ticket)

    def _work(self) -> None:
        while True:
            batch = self._take()
            if not batch:
                return
            began_at = time.perf_counter()
            try:
                outcomes = batch[0].handle([ticket.job for ticket in batch])
            except BaseException as error:
                outcomes = [error] * len(batch)
            ran = time.perf_counter() - began_at
            loop = batch[0].future.get_loop()
            try:
                loop.call_soon_threadsafe(_settle, batch, outcomes, began_at, ran)
            except RuntimeError:  # the loop has been closed: nobody waits for an answer any more
                return

    def _take(self) -> list[_Ticket]:
        """The next job, and those behind it that can be handled with it; empty when the pool is closed."""
        with self._changed:
            self._idle += 1
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            self._idle -= 1
            if self._is_closed:
                return []
            first = self._waiting.popleft()
            batch, weight = [first], first.weight
            while first.key is not None and self._waiting and self._waiting[0].key == first.key:
                weight += self._waiting[0].weight
                if weight > self._together:
                    break
                batch.append(self._waiting.popleft())
            return batch


def _settle(batch: Sequence[_Ticket], outcomes: Sequence[Any], began_at: float, ran: float) -> None:
    for ticket, outcome in zip(batch, outcomes, strict=True):
        if ticket.future.done():
            continue
        if isinstance(outcome, BaseException):
            ticket.future.set_exception(outcome)
        else:
            ticket.future.set_result(Done(outcome, waited=began_at - ticket.asked_at, ran=ran))


def _outcome(call: Callable[[], Result]) -> Result | BaseException:
    try:
        return call()
    except Exception as error:
        return error
