"""The events of one user, read from the file of events on demand."""

import logging
import sqlite3
import threading
from pathlib import Path

from beamtree.data.vocabulary import Id
from beamtree.serving.api_error import ApiError

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
