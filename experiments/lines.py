"""Measured lines on disk: JSON, one line each, appended by whoever measured."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beamtree.errors import DataError
from beamtree.training.exclusive import exclusive

Line = dict[str, Any]
NUMBER = re.compile(r"[-+]?\d|$")


def append_lines(file: Path, lines: Sequence[Line]) -> None:
    """Append lines in one write that is on the disk when this returns, with no other process writing meanwhile."""
    lock = file.with_name(f".{file.name}.lock")
    with exclusive(lock, on_wait=lambda _: None, should_stop=lambda: False):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        with os.fdopen(descriptor, "wb", buffering=0) as stream:
            stream.write("".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode())
            os.fsync(stream.fileno())


def read_lines(file: Path) -> list[Line]:
    """All lines of a file, none where there is no file; DataError names a line that is not JSON."""
    if not file.is_file():
        return []
    lines: list[Line] = []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError as error:
            raise DataError(f"{file}, line {number} is not JSON ({error}). Remove it and measure it again.") from error
    return lines


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; columns of numbers are aligned to the right."""
    columns = zip(*rows, strict=True)
    rule = ["---:" if all(NUMBER.match(cell) for cell in column) else "---" for column in columns]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *rows])
