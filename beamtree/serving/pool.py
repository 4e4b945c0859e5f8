"""Threads for searching, behind a queue that is bounded by work and fair between connections.

Queued parts with the same key are processed in one batch: the busier the server, the larger the batches, and no call
waits for a batch to fill. A large call is processed in slices, which alternate with those of other connections.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

from beamtree.serving.api_error import timed_out, too_busy
from beamtree.serving.fair_queue import FairQueue, Slice, WaitingCall
from beamtree.serving.limits import REFUSAL_SECONDS, REFUSALS_A_SECOND
from beamtree.serving.outcome import outcome_of

REMEMBERED_SLICES = 16

log = logging.getLogger(__name__)

Part = TypeVar("Part")
Result = TypeVar("Result")
Handle = Callable[[Sequence[Sequence[Part]]], Sequence[Sequence[Result] | BaseException]]


@dataclass(frozen=True)
class Done(Generic[Result]):
    """The result of a call, the seconds until its first slice started, and the seconds that its slices ran."""

    result: Result
    waited: float
    ran: float


@dataclass(eq=False, kw_only=True)
class _Ticket(WaitingCall):
    parts: Sequence[Any]
    handle: Handle[Any, Any]
    asked_at: float
    future: asyncio.Future[Done[list[Any]]]
    results: dict[int, Any] = field(default_factory=dict)
    waited: float | None = None
    ran: float = 0.0


class SearchPool:
    """A pool of `threads` threads. At most about `queue` of work is queued, and no more than can be done within half of
    `timeout_seconds` at the recent pace; further calls get 503.

    together: the work of a batch at most. It is less where that would take longer than `slice_seconds` at the recent
    pace, so that the next call does not wait long for a thread. slices_at_once: bounds the work of all threads together
    to this many batches, for work that shares more than the threads; a larger part runs alone.
    clock: the time in seconds; pause: sleeps for a number of seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        queue: float,
        timeout_seconds: float,
        together: float = 1.0,
        slice_seconds: float = float("inf"),
        slices_at_once: float = float("inf"),
        clock: Callable[[], float] = time.perf_counter,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self._queue = queue
        self._timeout_seconds = timeout_seconds
        self._together = together
        self._slice_seconds = slice_seconds
        self._slices_at_once = slices_at_once
        self._clock = clock
        self._pause = pause
        self._seconds_a_work = 0.0
        self._held = 0
        self._calls: FairQueue[_Ticket] = FairQueue()
        self._idle = 0
        self._under_way: list[float] = []
        self._is_closed = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return len(self._calls)

    @property
    def waiting_work(self) -> float:
        """Work in the queue."""
        return self._calls.work

    @property
    def running(self) -> int:
        """Busy threads."""
        return len(self._threads) - self._idle

    async def refuse_if_full(self, work: float = 1.0) -> None:
        """503 where the queue has no room for this work; by default for the least work, before a body is read."""
        with self._changed:
            is_full = self._is_full_for(work)
        if is_full:
            await self._refuse(work)

    async def run(self, call: Callable[[], Result], *, connection: Hashable = None) -> Done[Result]:
        """Run one function on a thread; see `submit`."""
        done = await self.submit([call], handle=_run_all, works=[1.0], connection=connection)
        return Done(done.result[0], waited=done.waited, ran=done.ran)

    async def submit(
        self,
        parts: Sequence[Part],
        *,
        handle: Handle[Part, Result],
        works: Sequence[float],
        connection: Hashable = None,
        key: Hashable = None,
    ) -> Done[list[Result]]:
        """Wait until all parts of a call are processed; 503 where the queue is full or the timeout expires.

        handle: takes the parts of one call, or of several with the same key (not None), and returns for each call the
        results of its parts or an exception, which is raised here. A call that has failed, has timed out or was
        cancelled is not continued. works: of each part.
        """
        loop = asyncio.get_running_loop()
        ticket = _Ticket(
            connection=connection,
            key=key,
            works=works,
            parts=parts,
            handle=handle,
            asked_at=self._clock(),
            future=loop.create_future(),
        )
        with self._changed:
            is_full = self._is_full_for(sum(works))
            if not is_full:
                self._calls.add(ticket)
                self._changed.notify()
        if is_full:
            await self._refuse(sum(works))
        end = loop.call_later(self._timeout_seconds, self._give_up, ticket)
        try:
            return await ticket.future
        finally:
            end.cancel()
            self._leave(ticket)

    def close(self) -> None:
        """Let running calls finish; queued ones are never started."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _is_full_for(self, work: float) -> bool:
        room = self._queue
        if self._seconds_a_work:
            room = min(room, len(self._threads) * self._timeout_seconds / 2 / self._seconds_a_work)
        spare = self._idle if sum(self._under_way) < self._at_once else 0
        return self._calls.is_full_for(work, room=room + spare)

    async def _refuse(self, work: float) -> NoReturn:
        """Raise a 503, delayed the more, the more clients get one, so that clients that retry at once do not keep the
        server from answering others.
        """
        error = too_busy(
            f"{self.running} threads are busy and {self.waiting} calls wait, worth {self.waiting_work:.0f} searches; "
            f"this call is worth {work:.0f}. Try again in a second, or ask for less at once."
        )
        self._held += 1
        try:
            await self._pause(min(REFUSAL_SECONDS, (self._held - 1) / REFUSALS_A_SECOND))
        finally:
            self._held -= 1
        raise error

    def _give_up(self, ticket: _Ticket) -> None:
        if not ticket.future.done():
            ticket.future.set_exception(timed_out(self._timeout_seconds))

    def _leave(self, ticket: _Ticket) -> None:
        if ticket.begun < len(ticket.parts):
            with self._changed:
                self._calls.discard(ticket)

    def _serve(self) -> None:
        slices: list[Slice[_Ticket]] = []
        ran = 0.0
        while slices := self._take(slices, ran=ran):
            began_at = self._clock()
            parts = [one.call.parts[one.first : one.end] for one in slices]
            outcomes = outcome_of(slices[0].call.handle, parts)
            if isinstance(outcomes, BaseException):
                outcomes = [outcomes] * len(slices)
            ran = self._clock() - began_at
            loop = slices[0].call.future.get_loop()
            try:
                loop.call_soon_threadsafe(_settle, slices, outcomes, began_at, ran)
            except RuntimeError:  # the loop was closed: no client is left
                return

    def _take(self, done: list[Slice[_Ticket]], *, ran: float) -> list[Slice[_Ticket]]:
        """The next batch; empty when the pool is closed.

        done, ran: the batch before, and the seconds that it took.
        """
        with self._changed:
            if done:
                self._under_way.remove(_work_of(done))
                self._learn_pace(ran / _work_of(done))
            self._idle += 1
            self._changed.notify()  # what exceeded the bound of all threads may fit now
            while not self._is_closed and not self._may_begin():
                self._changed.wait()
            self._idle -= 1
            if self._is_closed:
                return []
            slices = self._calls.take(min(self._slice_work, self._at_once - sum(self._under_way)))
            self._under_way.append(_work_of(slices))
            return slices

    def _learn_pace(self, seconds_a_work: float) -> None:
        before = self._seconds_a_work
        self._seconds_a_work = before + (seconds_a_work - before) / REMEMBERED_SLICES if before else seconds_a_work

    @property
    def _slice_work(self) -> float:
        """The work of a batch: at least that of one search, and no more until the pace is known."""
        within = self._slice_seconds / self._seconds_a_work if self._seconds_a_work else 1.0
        return min(self._together, max(1.0, within))

    @property
    def _at_once(self) -> float:
        return self._slice_work * self._slices_at_once

    def _may_begin(self) -> bool:
        if not len(self._calls):
            return False
        return not self._under_way or sum(self._under_way) + self._calls.next_work() <= self._at_once


def _work_of(slices: Sequence[Slice[_Ticket]]) -> float:
    return sum(one.work for one in slices)


def _settle(slices: Sequence[Slice[_Ticket]], outcomes: Sequence[Any], began_at: float, ran: float) -> None:
    """Record the outcomes of slices; a call is done when it has all its parts or when one has failed."""
    for one, outcome in zip(slices, outcomes, strict=True):
        ticket = one.call
        if ticket.future.done():
            continue
        if isinstance(outcome, BaseException):
            ticket.future.set_exception(_raisable(outcome))
            continue
        if ticket.waited is None:
            ticket.waited = began_at - ticket.asked_at
        ticket.ran += ran
        ticket.results.update(zip(range(one.first, one.end), outcome, strict=True))
        if len(ticket.results) == len(ticket.parts):
            ordered = [ticket.results[part] for part in range(len(ticket.parts))]
            ticket.future.set_result(Done(ordered, waited=ticket.waited, ran=ticket.ran))


def _raisable(error: BaseException) -> Exception:
    """The error itself, or a RuntimeError in place of one that would end more than a request."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    log.error("a call failed", exc_info=error)
    return RuntimeError(f"{type(error).__name__}: {error}")


def _run_all(waiting: Sequence[Sequence[Callable[[], Result]]]) -> list[list[Result] | BaseException]:
    return [outcome_of(_run_one, calls) for calls in waiting]


def _run_one(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    return [call() for call in calls]
