"""Events of requests: written in groups by one thread, passed on to the histories, deleted after a time.

A client is answered once its events are on disk. Calls that arrive while a transaction is written share the next one,
so that many clients cost few flushes.
"""

import asyncio
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from beamtree.data.vocabulary import Id
from beamtree.serving.api_error import ApiError, too_busy
from beamtree.serving.event_file import EventFile, FileLocked, FileReplaced, KeyReused, StoredEvent

SECONDS_BETWEEN_PRUNINGS = 60.0
_RETRY = {"Retry-After": "1"}

log = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(eq=False)
class _Waiting:
    """A waiting call: what it does within a transaction, and the future of its result or error."""

    write: Callable[[], Any]
    future: asyncio.Future[Any]


class EventStore:
    """Writes the events of requests in groups, and invalidates cached histories.

    outdate: called with the users of new events, before their call returns, or, where another server has written them,
    within `follow_seconds`. outdate_all: called when a user was erased. keep_seconds: how long events are kept after
    their arrival.
    """

    def __init__(
        self,
        file: EventFile,
        *,
        outdate: Callable[[Iterable[Id]], None],
        outdate_all: Callable[[], None],
        queue: int,
        timeout_seconds: float,
        keep_seconds: float = float("inf"),
        follow_seconds: float = 0.5,
    ) -> None:
        self._file = file
        self._outdate = outdate
        self._outdate_all = outdate_all
        self._queue = queue
        self._timeout_seconds = timeout_seconds
        self._keep_seconds = keep_seconds
        self._follow_seconds = follow_seconds
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._closed_at = 0.0
        self._next_pruning = 0.0
        self._must_scrub = False
        self._file.pass_over()
        self._thread = threading.Thread(target=self._work, name="events", daemon=True)
        self._thread.start()

    async def add(self, events: Sequence[StoredEvent], *, key: str | None = None, content: bytes = b"") -> bool:
        """Return when the events are on disk and part of the histories; False where they were before, by their key.

        key, content: see `EventFile.add`. ApiError: 503 where they cannot be written now, 422 for a key that was
        used for other events.
        """
        return await self._submit(lambda: self._file.add(events, key=key, content=content))

    async def erase_user(self, user: Id) -> int:
        """Delete all events of one user, from disk and from the histories, and return their number."""
        return await self._submit(lambda: self._file.erase_user(user))

    def close(self) -> None:
        """Write what waits, then close the file."""
        with self._changed:
            self._is_closed = True
            self._closed_at = time.monotonic()
            self._changed.notify()
        self._thread.join()
        self._file.close()

    async def _submit(self, write: Callable[[], Result]) -> Result:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(write, future)
        with self._changed:
            if len(self._waiting) >= self._queue or self._is_closed:
                raise too_busy(f"{len(self._waiting)} calls wait for the disk. Try again in a second.")
            self._waiting.append(waiting)
            self._changed.notify()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await future
        except TimeoutError:
            raise self._give_up(waiting) from None

    def _give_up(self, waiting: _Waiting) -> ApiError:
        """Remove a call from the queue; a call that is being written can no longer be cancelled."""
        seconds = f"within {self._timeout_seconds:g} s"
        with self._changed:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                return ApiError(
                    503, "timed_out", f"Nothing could be written {seconds}; none was taken.", headers=_RETRY
                )
        return ApiError(
            503,
            "timed_out",
            f"The disk did not confirm {seconds}, and may yet. Send it again with the same Idempotency-Key.",
            headers=_RETRY,
        )

    def _work(self) -> None:
        while self._wait():
            outcomes = self._write_group()
            try:
                self._catch_up()
            except sqlite3.Error as error:
                log.exception("events could not be read", extra={"reason": str(error)})
            for waiting, outcome in outcomes:
                loop = waiting.future.get_loop()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_settle, waiting.future, outcome)
            self._prune_in_time()

    def _wait(self) -> bool:
        """Wait until there is something to write or to check; False when the store is closed and all is written.

        While another process holds the lock, waiting calls time out.
        """
        with self._changed:
            if not self._waiting and not self._is_closed:
                self._changed.wait(self._follow_seconds)
            is_over = self._is_closed and time.monotonic() > self._closed_at + self._timeout_seconds
            return not self._is_closed or (bool(self._waiting) and not is_over)

    def _write_group(self) -> list[tuple[_Waiting, object]]:
        """Write all waiting calls in one transaction; each with its result, or with an error for all of them."""
        taken: list[_Waiting] = []
        if not self._waiting:
            return []
        try:
            with self._file.transaction():
                taken = self._take_all()
                results = [_attempt(waiting) for waiting in taken]
        except FileLocked:
            return []  # they keep waiting, for the lock or for their timeout
        except Exception as error:
            log.exception("events could not be written", extra={"reason": str(error)})
            return [(waiting, _error(error)) for waiting in taken or self._take_all()]
        return list(zip(taken, results, strict=True))

    def _take_all(self) -> list[_Waiting]:
        with self._changed:
            taken = list(self._waiting)
            self._waiting.clear()
        return taken

    def _prune_in_time(self) -> None:
        """Delete old events, a chunk at a time, and check again later."""
        if time.monotonic() < self._next_pruning:
            return
        try:
            with self._file.transaction():
                pruned = self._file.prune(older_than=self._keep_seconds)
        except (sqlite3.Error, FileLocked, FileReplaced) as error:
            log.warning("old events could not be deleted", extra={"reason": str(error)})
            pruned = 0
        if not pruned:
            self._next_pruning = time.monotonic() + SECONDS_BETWEEN_PRUNINGS

    def _catch_up(self) -> None:
        if self._file.has_erasures():
            self._must_scrub = True
            self._outdate_all()
        if self._must_scrub:
            self._must_scrub = not self._file.scrub()
        for events in self._file.read_new():
            self._outdate(event.user for event in events)


def _attempt(waiting: _Waiting) -> object:
    """The result of a call, or the error that concerns it alone."""
    try:
        return waiting.write()
    except KeyReused:
        return ApiError(
            422,
            "key_reused",
            "This Idempotency-Key came with other events before; nothing was taken. Use a new key for new events.",
        )


def _error(error: Exception) -> ApiError:
    if isinstance(error, FileReplaced):
        return ApiError(
            503,
            "store_moved",
            "The file of events is no longer where it was opened; nothing was confirmed. The operator has to put it "
            "back or restart the server.",
            headers=_RETRY,
        )
    return ApiError(503, "store_failed", "The events could not be written to disk; none was taken.", headers=_RETRY)


def _settle(future: asyncio.Future[object], outcome: object) -> None:
    if future.done():
        return
    if isinstance(outcome, ApiError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
