"""Events on disk: an SQLite file that only grows, that several servers may share, and that survives a crash.

Whoever posts an event hears back only after it is on disk. Events that arrive while a transaction is being written go
into the next one together, so that many clients cost few flushes of the disk.
"""

import asyncio
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from beamtree.data.vocabulary import Id
from beamtree.errors import DataError
from beamtree.serving.api_error import ApiError, too_busy

APPLICATION_ID = 0x6265616D
FORMAT_VERSION = 1
BUSY_SECONDS = 10.0
ROWS_AT_A_TIME = 10_000

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredEvent:
    """A user met an item at a moment, in seconds since 1970."""

    user: Id
    item: Id
    timestamp: float


@dataclass(eq=False)
class _Waiting:
    events: Sequence[StoredEvent]
    future: asyncio.Future[None]


class EventFile:
    """The file itself: append events, and read those that came since the last reading, in the order of the file."""

    def __init__(self, path: Path) -> None:
        try:
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        except sqlite3.Error as error:
            raise DataError(
                f"{path} cannot be used as a store of events ({error}). Give a file that beamtree made, or a new one "
                "in a folder that is writable."
            ) from error
        self._last_read = 0

    def append(self, events: Iterable[StoredEvent]) -> None:
        """Write events in one transaction and flush it to disk; sqlite3.Error leaves none of them behind."""
        with self._transaction():
            self._connection.executemany(
                "INSERT INTO events (user, item, timestamp) VALUES (?, ?, ?)",
                ((event.user, event.item, event.timestamp) for event in events),
            )

    def read_new(self) -> Iterator[list[StoredEvent]]:
        """Events that were not read before, whoever wrote them, some thousands at a time."""
        while True:
            rows = self._connection.execute(
                "SELECT id, user, item, timestamp FROM events WHERE id > ? ORDER BY id LIMIT ?",
                (self._last_read, ROWS_AT_A_TIME),
            ).fetchall()
            if not rows:
                return
            self._last_read = rows[-1][0]
            yield [StoredEvent(user, item, timestamp) for _, user, item, timestamp in rows]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _prepare(self) -> None:
        """Make the table in a new file; refuse a file that holds something else."""
        connection = self._connection
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            [tables] = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if tables == 0:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
                # The columns have no type, so that an integer stays an integer and a text a text.
                connection.execute(
                    "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, user NOT NULL, item NOT NULL, "
                    "timestamp NOT NULL)"
                )
        [found] = connection.execute("PRAGMA application_id").fetchone()
        [version] = connection.execute("PRAGMA user_version").fetchone()
        if (found, version) != (APPLICATION_ID, FORMAT_VERSION):
            raise sqlite3.DatabaseError("it is another program's database, or another version's")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


class EventStore:
    """Takes events from requests, writes them in groups, and tells `learn` of every event of the file in its order.

    Events that other servers write into the same file are told within `follow_seconds`.
    """

    def __init__(
        self,
        file: EventFile,
        *,
        learn: Callable[[Iterable[tuple[Id, Id]]], None],
        queue: int,
        follow_seconds: float = 0.5,
    ) -> None:
        self._file = file
        self._learn = learn
        self._queue = queue
        self._follow_seconds = follow_seconds
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._catch_up()
        self._thread = threading.Thread(target=self._work, name="events", daemon=True)
        self._thread.start()

    async def add(self, events: Sequence[StoredEvent]) -> None:
        """Return when the events are on disk and part of the histories; 503 where they cannot be written now."""
        waiting = _Waiting(events, asyncio.get_running_loop().create_future())
        with self._changed:
            if len(self._waiting) >= self._queue or self._is_closed:
                raise too_busy(f"{len(self._waiting)} calls wait for the disk. Try again in a second.")
            self._waiting.append(waiting)
            self._changed.notify()
        await waiting.future

    def close(self) -> None:
        """Write what waits, then close the file."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        self._file.close()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting and not self._is_closed:
                    self._changed.wait(self._follow_seconds)
                group = list(self._waiting)
                self._waiting.clear()
                if not group and self._is_closed:
                    return
            refusal = self._write(group) if group else None
            try:
                self._catch_up()
            except sqlite3.Error:
                log.exception("events could not be read")
            for waiting in group:
                waiting.future.get_loop().call_soon_threadsafe(_settle, waiting.future, refusal)

    def _write(self, group: Sequence[_Waiting]) -> ApiError | None:
        try:
            self._file.append(event for waiting in group for event in waiting.events)
        except sqlite3.Error as error:
            log.exception("events could not be written", extra={"reason": str(error)})
            return ApiError(
                503,
                "store_failed",
                "The events could not be written to disk; none was taken.",
                headers={"Retry-After": "1"},
            )
        return None

    def _catch_up(self) -> None:
        for events in self._file.read_new():
            self._learn((event.user, event.item) for event in events)


def _settle(future: asyncio.Future[None], refusal: ApiError | None) -> None:
    if future.done():
        return
    if refusal is None:
        future.set_result(None)
    else:
        future.set_exception(refusal)
