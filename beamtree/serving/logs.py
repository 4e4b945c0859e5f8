"""Logs as lines of JSON. What people watched or bought is not in them."""

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import TextIO

from pydantic_core import to_json

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, message, and whatever was passed as `extra`.

    Of an exception the type and the places are written, not its message, which may quote a request.
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


def log_to(stream: TextIO | None = None) -> None:
    """Send all logs, uvicorn's among them, to a stream (standard error) as lines of JSON."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
