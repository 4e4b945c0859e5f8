"""Events on disk: an SQLite file that servers can share, that survives a crash, and whose loss is detected.

events   one row per event in the order of arrival; columns without a type, so that 7 and '7' stay different ids
calls    idempotency keys of the last day, as hashes, with a hash of what the call held
changes  how often users were erased: when it grows, histories cached in memory are read again
"""

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from typing import Self

from beamtree.data.vocabulary import Id
from beamtree.errors import DataError
from beamtree.storage import replace_file

APPLICATION_ID = 0x6265616D
FORMAT_VERSION = 3
LOCK_SECONDS = 0.05
DAY = 86_400.0
KEY_SECONDS = DAY
ROWS_AT_A_TIME = 10_000
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_FORMAT_1 = (
    "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, user NOT NULL, item NOT NULL, timestamp NOT NULL)"
)
_FORMAT_2 = (
    "ALTER TABLE events ADD COLUMN received NOT NULL DEFAULT 0",
    "CREATE INDEX events_of_user ON events (user, id)",
    "CREATE TABLE calls (key PRIMARY KEY, content NOT NULL, received NOT NULL) WITHOUT ROWID",
    "CREATE INDEX calls_by_age ON calls (received)",
    "CREATE TABLE changes (erasures NOT NULL)",
    "INSERT INTO changes VALUES (0)",
)
_FORMAT_3 = "ALTER TABLE events ADD COLUMN event_type"


class FileReplaced(Exception):
    """The open file is no longer the one at its path: what is written to it may be lost."""


class KeyReused(Exception):
    """An idempotency key that was used for other events before."""


class FileLocked(Exception):
    """Another process is writing; nothing was done."""


@dataclass(frozen=True)
class StoredEvent:
    """An interaction of a user with an item. timestamp: seconds since 1970; event_type: None where it was not given."""

    user: Id
    item: Id
    timestamp: float
    event_type: str | None = None


class EventFile:
    """Writes events in transactions, and reads those added since the last read, in the order of the file.

    Not thread-safe. lock_seconds: how long opening waits for another process that writes.
    """

    def __init__(self, path: Path, *, lock_seconds: float = 10.0, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        try:
            self._connection = sqlite3.connect(
                path, timeout=lock_seconds, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        except (sqlite3.Error, FileLocked) as error:
            raise DataError(
                f"{path} cannot be used as a store of events ({error}). Give a file that beamtree made, or a new one "
                "in a folder that is writable."
            ) from error
        self._last_read = 0
        self._erasures = self._count_erasures()
        self._identity = self._identify()

    @classmethod
    def existing(cls, path: Path) -> Self:
        """A file that must be there already; DataError where it is not."""
        if not path.is_file():
            raise DataError(f"{path}: there is no such file of events. Give the file that `serve --events` was given.")
        return cls(path)

    @contextmanager
    def transaction(self, *, lock_seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """All that is written inside is on disk afterwards, or none of it.

        FileLocked where another process writes for longer than lock_seconds; FileReplaced where the file was moved or
        deleted, before or meanwhile; sqlite3.Error, such as a full disk, leaves nothing behind.
        """
        self._check_identity()
        self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * lock_seconds)}")
        with self._atomically():
            yield
        self._check_identity()

    def add(self, events: Sequence[StoredEvent], *, key: str | None = None, content: bytes = b"") -> bool:
        """Write events, within a transaction; False, and nothing is written, where the key was written before.

        content: of the call, in a form that is the same when it is sent again. KeyReused where the key was written with
        other content.
        """
        if key is not None and self._is_known(key, content):
            return False
        received = self._clock()
        self._connection.executemany(
            "INSERT INTO events (user, item, timestamp, received, event_type) VALUES (?, ?, ?, ?, ?)",
            ((event.user, event.item, event.timestamp, received, event.event_type) for event in events),
        )
        return True

    def erase_user(self, user: Id) -> int:
        """Delete all events of one user, within a transaction, and return their number. Call `scrub` afterwards."""
        erased = self._connection.execute("DELETE FROM events WHERE user = ?", (user,)).rowcount
        if erased:
            self._connection.execute("UPDATE changes SET erasures = erasures + 1")
        return erased

    def scrub(self) -> bool:
        """Overwrite deleted data on disk too; False where another process still holds the old pages.

        In that case they are overwritten at a later checkpoint.
        """
        [is_busy, *_] = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not is_busy

    def prune(self, *, older_than: float) -> int:
        """Delete events that arrived more than `older_than` seconds ago, within a transaction, and return their number.

        At most ROWS_AT_A_TIME per call: call again until it returns 0. Old idempotency keys are deleted too.
        """
        now, connection = self._clock(), self._connection
        connection.execute("DELETE FROM calls WHERE received < ?", (now - KEY_SECONDS,))
        oldest = connection.execute("SELECT id, received FROM events ORDER BY id LIMIT ?", (ROWS_AT_A_TIME,)).fetchall()
        old = [number for number, _ in takewhile(lambda row: row[1] < now - older_than, oldest)]
        if not old:
            return 0
        return connection.execute("DELETE FROM events WHERE id <= ?", (old[-1],)).rowcount

    def read_new(self) -> Iterator[list[StoredEvent]]:
        """Events that were not read before, of all writers, in chunks."""
        while True:
            rows = self._connection.execute(
                "SELECT id, user, item, timestamp, event_type FROM events WHERE id > ? ORDER BY id LIMIT ?",
                (self._last_read, ROWS_AT_A_TIME),
            ).fetchall()
            if not rows:
                return
            self._last_read = rows[-1][0]
            yield [StoredEvent(*columns) for _, *columns in rows]

    def pass_over(self) -> None:
        """Mark all events in the file as read."""
        [last] = self._connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()
        self._last_read = int(last)

    def has_erasures(self) -> bool:
        """Whether any process has erased a user since the last call."""
        before, self._erasures = self._erasures, self._count_erasures()
        return before != self._erasures

    def users_spelt(self, text: str) -> list[Id]:
        """The users with events that a text can name: as a text, and as an integer."""
        spelt: list[Id] = [text]
        if _INTEGER.fullmatch(text) and str(int(text)) == text and -(2**63) <= int(text) < 2**63:
            spelt.append(int(text))
        found = "SELECT 1 FROM events WHERE user = ? LIMIT 1"
        return [user for user in spelt if self._connection.execute(found, (user,)).fetchone()]

    def copy_to(self, path: Path) -> int:
        """Write a consistent copy, even while servers write, and return its number of events. DataError on failure."""

        def write(beside: Path) -> None:
            beside.unlink(missing_ok=True)
            self._connection.execute("VACUUM INTO ?", (str(beside),))

        try:
            replace_file(path, write)
            copy = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
            [problem] = copy.execute("PRAGMA integrity_check").fetchone()
            [count] = copy.execute("SELECT count(*) FROM events").fetchone()
            copy.close()
        except (OSError, sqlite3.Error) as error:
            raise DataError(
                f"{path}: the copy could not be written ({error}). Check the folder and the disk."
            ) from error
        if problem != "ok":
            raise DataError(f"{path}: the copy is damaged ({problem}), and so is {self._path}. Keep older copies.")
        return int(count)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _prepare(self) -> None:
        """Create the tables in a new file, upgrade an older one, refuse a file that is something else."""
        connection = self._connection
        self._find_version()
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        with self._atomically():
            version = self._find_version()
            if version == 0:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(_FORMAT_1)
            if version < 2:
                for statement in _FORMAT_2:
                    connection.execute(statement)
                connection.execute("UPDATE events SET received = ?", (self._clock(),))
            if version < FORMAT_VERSION:
                connection.execute(_FORMAT_3)
                connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _find_version(self) -> int:
        """The version of the format, 0 for an empty file; sqlite3.DatabaseError for other databases."""
        [tables] = self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        [found] = self._connection.execute("PRAGMA application_id").fetchone()
        [version] = self._connection.execute("PRAGMA user_version").fetchone()
        if tables == 0:
            return 0
        if found != APPLICATION_ID or not 1 <= version <= FORMAT_VERSION:
            raise sqlite3.DatabaseError("it is another program's database, or a newer version's")
        return int(version)

    @contextmanager
    def _atomically(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            raise FileLocked(f"{self._path} is being written by another process.") from error
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _is_known(self, key: str, content: bytes) -> bool:
        """Whether this call was written before; if not, record it."""
        hashes = (_hash(key.encode()), _hash(content))
        before = self._connection.execute("SELECT content FROM calls WHERE key = ?", hashes[:1]).fetchone()
        if before is None:
            self._connection.execute("INSERT INTO calls VALUES (?, ?, ?)", (*hashes, self._clock()))
            return False
        if before[0] != hashes[1]:
            raise KeyReused
        return True

    def _count_erasures(self) -> int:
        [erasures] = self._connection.execute("SELECT erasures FROM changes").fetchone()
        return int(erasures)

    def _identify(self) -> list[tuple[int, int]]:
        """Device and inode of the database, of its write-ahead log and of the log's index."""
        real = os.path.realpath(self._path)  # where SQLite puts the other two
        found = [os.stat(path) for path in (self._path, f"{real}-wal", f"{real}-shm")]
        return [(status.st_dev, status.st_ino) for status in found]

    def _check_identity(self) -> None:
        try:
            is_there = self._identify() == self._identity
        except OSError:
            is_there = False
        if not is_there:
            raise FileReplaced(
                f"{self._path} (or its -wal or -shm) was moved, deleted or replaced since it was opened. Put the files "
                "back where they were, or restart the server to begin with what is there."
            )


def prune_all(file: EventFile, *, older_than: float, lock_seconds: float) -> int:
    """Delete all events that arrived more than `older_than` seconds ago, and return their number."""
    pruned = 0
    while True:
        with file.transaction(lock_seconds=lock_seconds):
            some = file.prune(older_than=older_than)
        if not some:
            file.scrub()
            return pruned
        pruned += some


def _hash(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()
