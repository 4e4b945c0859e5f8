"""Line numbers of rows of a text file, computed only once a row turns out to be bad.

A row is numbered as the fast reader numbers it: from 0, after the header, empty lines of separated text included,
empty lines of JSON left out. A row whose quoted fields span several lines has the number of the first.
"""

import csv
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

LineNumbers = Callable[[Sequence[int]], list[int]]
"""From row indices to line numbers, the first line of a file being 1."""

_CHUNK_BYTES = 2**20


def text_lines(content: Path | bytes, *, separator: str, has_header: bool, quote: str | None) -> LineNumbers:
    """For separated text."""
    return partial(_text_lines, content, separator=separator, has_header=has_header, quote=quote)


def json_lines(content: Path | bytes) -> LineNumbers:
    """For one JSON object per line."""
    return partial(_json_lines, content)


def _text_lines(
    content: Path | bytes, rows: Sequence[int], *, separator: str, has_header: bool, quote: str | None
) -> list[int]:
    if quote is None or not _contains(content, quote.encode()):
        with open_text(content) as text:
            before = next((number for number, line in enumerate(text) if line.strip("\r\n")), 0)
        return [before + has_header + row + 1 for row in rows]
    wanted, found = set(rows), dict[int, int]()
    with open_text(content) as text:
        reader = csv.reader(text, delimiter=separator, quotechar=quote)
        row, first_line = -1 if has_header else 0, 1
        is_begun = False
        for fields in reader:
            is_begun = is_begun or bool(fields)
            if is_begun:
                if row in wanted:
                    found[row] = first_line
                row += 1
            first_line = reader.line_num + 1
    return [found.get(row, row + has_header + 1) for row in rows]


def _json_lines(content: Path | bytes, rows: Sequence[int]) -> list[int]:
    wanted, found = set(rows), dict[int, int]()
    with open_text(content) as text:
        filled = (number for number, line in enumerate(text, start=1) if line.strip())
        for row, number in enumerate(filled):
            if row in wanted:
                found[row] = number
    return [found.get(row, row + 1) for row in rows]


def _contains(content: Path | bytes, mark: bytes) -> bool:
    if isinstance(content, bytes):
        return mark in content
    with content.open("rb") as file:
        return any(mark in chunk for chunk in iter(partial(file.read, _CHUNK_BYTES), b""))


def open_text(content: Path | bytes) -> TextIO:
    """The text of a file or of bytes, with its line ends as they are; bytes that are no UTF-8 are replaced."""
    if isinstance(content, bytes):
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="replace", newline="")
    return content.open(encoding="utf-8", errors="replace", newline="")
