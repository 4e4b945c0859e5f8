"""Logs as JSON lines, without histories; a reader that stalls does not block the server."""

import logging
import os
import select
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from pydantic_core import to_json

from beamtree.serving.limits import LOG_QUEUE_BYTES

STANDARD_ERROR = 2
BATCH_BYTES = 65_536
PAUSE_SECONDS = 0.02
LAST_WORDS_SECONDS = 1.0
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, message, and the fields passed as `extra`.

    Exceptions are written with type and stack, but without the message, which may quote a request.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info and record.exc_info[0] is not None:
            places = traceback.extract_tb(record.exc_info[2])
            line["exception"] = record.exc_info[0].__name__
            line["where"] = [f"{place.filename}:{place.lineno} {place.name}" for place in places]
        return to_json(line, fallback=str).decode()


class LogQueue(logging.Handler):
    """Writes lines to a file descriptor from a background thread.

    While nothing is read, at most `LOG_QUEUE_BYTES` are queued; further lines are dropped and counted by
    `count_dropped`, and their number is logged once lines can be written again. At exit, a second is left for the rest.
    """

    def __init__(self, descriptor: int, *, max_bytes: int = LOG_QUEUE_BYTES) -> None:
        super().__init__()
        self.count_dropped: Callable[[], object] = lambda: None
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._unreported = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line, or drop it where the queue is full."""
        try:
            line = self.format(record).encode() + b"\n"
        except Exception:
            self._drop()
            return
        with self._changed:
            has_room = self._waiting_bytes + len(line) <= self._max_bytes
            if has_room:
                self._lines.append(line)
                self._waiting_bytes += len(line)
                self._changed.notify_all()
        if not has_room:
            self._drop()

    def flush(self) -> None:
        """Wait until all lines are written, for at most a second."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting_bytes, LAST_WORDS_SECONDS)

    def _drop(self) -> None:
        self._unreported += 1
        self.count_dropped()

    def _work(self) -> None:
        while True:
            batch = self._take()
            is_written = self._write(batch)
            with self._changed:
                self._waiting_bytes -= len(batch)
                self._changed.notify_all()
            if is_written and self._unreported:
                self._log_number_dropped()
            if not self._lines:
                time.sleep(PAUSE_SECONDS)  # lines that arrive meanwhile are written together

    def _take(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._lines)
            batch = [self._lines.popleft()]
            size = len(batch[0])
            while self._lines and size + len(self._lines[0]) <= BATCH_BYTES:
                batch.append(self._lines.popleft())
                size += len(batch[-1])
        return b"".join(batch)

    def _write(self, text: bytes) -> bool:
        """Write a text, blocking as long as needed; False on an error."""
        rest = memoryview(text)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except OSError:
                for _ in range(text.count(b"\n")):
                    self._drop()
                return False
        return True

    def _log_number_dropped(self) -> None:
        lines, self._unreported = self._unreported, 0
        told = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": "log lines were dropped"}
        self._write(self.format(logging.makeLogRecord(told | {"lines": lines})).encode() + b"\n")


def log_to(descriptor: int = STANDARD_ERROR) -> LogQueue:
    """Send all logs, including uvicorn's and Python's warnings, to a file descriptor as JSON lines."""
    queue = LogQueue(descriptor)
    queue.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [queue]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    return queue
