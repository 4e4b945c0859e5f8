"""Histories of users: from a log read at start, then from the store of events, with a bounded cache."""

import logging
import sqlite3
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from beamtree.data.interactions import InteractionLog
from beamtree.data.raw_ids import RawIds
from beamtree.data.vocabulary import Id
from beamtree.retrieval.histories import LogHistories
from beamtree.serving.api_error import ApiError
from beamtree.serving.limits import HISTORY_CACHE_BYTES, HISTORY_CACHE_SECONDS
from beamtree.serving.outcome import outcome_of

POINTER_BYTES = 8
ENTRY_BYTES = 512
"""Overhead of a cached history: the entry, its user, its slot in the table."""


class StoredEvents(Protocol):
    """Where events are kept for good."""

    def latest(self, user: Id, *, count: int) -> list[Id]:
        """The items of the latest events of a user, oldest first."""

    def close(self) -> None:
        """Release the store."""


@dataclass(frozen=True, eq=False)
class _Kept:
    items: Sequence[Id]
    num_bytes: int
    read_at: float


class Histories:
    """Raw item ids of each user, oldest first: those of the log, then those of the events, at most `latest` of them.

    Cached entries are dropped when new events arrive, after `cache_seconds`, or when the cache exceeds `cache_bytes`.
    stored: None where no events are stored.
    """

    def __init__(
        self,
        log: InteractionLog | None,
        *,
        stored: StoredEvents | None,
        latest: int,
        cache_bytes: int = HISTORY_CACHE_BYTES,
        cache_seconds: float = HISTORY_CACHE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logged = None if log is None else LogHistories(log)
        self._stored = stored
        self._latest = latest
        self._cache_bytes = cache_bytes
        self._cache_seconds = cache_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[Id, _Kept] = OrderedDict()
        self._being_read: dict[Id, object] = {}
        self.cached_bytes = 0

    @property
    def users(self) -> RawIds | None:
        """The users of the log; None without a log, where user ids may be integers or texts."""
        return None if self._logged is None else self._logged.users

    def check_users(self, users: Sequence[Id]) -> None:
        """IdTypeError for a user id of another type than those of the log."""
        if self.users is not None:
            self.users.check(users, what="user_id")

    def of(self, user: Id) -> list[Id] | None:
        """The history of one user; None for a user that neither log nor events know."""
        recent = self._recent(user)
        logged = None if self._logged is None else self._logged.of(user)
        if logged is None:
            return list(recent) or None
        return [*logged.tail(self._latest - len(recent)).to_list(), *recent]

    def logged(self, user: Id, *, count: int) -> list[Id]:
        """The latest items of one user in the log alone, oldest first."""
        logged = None if self._logged is None else self._logged.of(user)
        return [] if logged is None else logged.tail(count).to_list()

    def outdate(self, users: Iterable[Id]) -> None:
        """Drop the cached histories of users with new events."""
        with self._lock:
            for user in users:
                self._drop(user)

    def outdate_all(self) -> None:
        """Drop all cached histories: events have been deleted."""
        with self._lock:
            self._kept.clear()
            self._being_read.clear()
            self.cached_bytes = 0

    def close(self) -> None:
        """Close the store for reading."""
        if self._stored is not None:
            self._stored.close()

    def _recent(self, user: Id) -> Sequence[Id]:
        """The latest events of a user, from memory or from the store."""
        if self._stored is None:
            return ()
        reading = object()
        with self._lock:
            kept = self._kept.get(user)
            if kept is not None and self._clock() < kept.read_at + self._cache_seconds:
                self._kept.move_to_end(user)
                return kept.items
            self._drop(user)
            self._being_read[user] = reading
        read_at, items = self._clock(), outcome_of(self._stored.latest, user, count=self._latest)
        with self._lock:
            is_current = self._being_read.get(user) is reading  # false where new events arrived meanwhile
            if is_current:
                del self._being_read[user]
            if isinstance(items, BaseException):
                raise items
            if is_current:
                self._keep(user, items, read_at=read_at)
        return items

    def _keep(self, user: Id, items: Sequence[Id], *, read_at: float) -> None:
        num_bytes = ENTRY_BYTES + sum(sys.getsizeof(item) + POINTER_BYTES for item in items)
        self._kept[user] = _Kept(items, num_bytes, read_at)
        self.cached_bytes += num_bytes
        while self.cached_bytes > self._cache_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, user: Id) -> None:
        self._being_read.pop(user, None)
        kept = self._kept.pop(user, None)
        if kept is not None:
            self.cached_bytes -= kept.num_bytes


log = logging.getLogger(__name__)


class UserEvents:
    """Reads the file of an `EventFile` over a separate connection; thread-safe."""

    def __init__(self, path: Path, *, lock_seconds: float) -> None:
        self._connection = sqlite3.connect(path, timeout=lock_seconds, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA query_only = ON")
        self._connection.execute("SELECT max(id) FROM events").fetchone()  # makes SQLite open its files now
        self._lock = threading.Lock()

    def latest(self, user: Id, *, count: int) -> list[Id]:
        """The items of the latest events of a user, oldest first; 503 where the file cannot be read."""
        try:
            with self._lock:
                rows = self._connection.execute(
                    "SELECT item FROM events WHERE user = ? ORDER BY id DESC LIMIT ?", (user, count)
                ).fetchall()
        except sqlite3.Error as error:
            log.exception("events could not be read", extra={"reason": str(error)})
            raise ApiError(
                503,
                "store_failed",
                "The history of the user could not be read from disk. Try again, or send the history.",
                headers={"Retry-After": "1"},
            ) from error
        return [item for (item,) in reversed(rows)]

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()
