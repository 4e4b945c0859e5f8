"""The header of a text file, and its malformed rows: used only after the fast reader has failed."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from beamtree.data.line_numbers import open_text


def read_header(content: Path | bytes, *, separator: str) -> list[str]:
    """The fields of the first line that is not empty, as they are written; none where it is no line of fields."""
    with open_text(content) as text:
        try:
            first = next((row for row in csv.reader(text, delimiter=separator) if row), [])
        except csv.Error:
            first = []
    return [field.removeprefix("\ufeff") for field in first]


def find_ragged_rows(content: Path | bytes, *, separator: str, has_header: bool, quote: str | None) -> dict[int, str]:
    """Rows with more fields than the header (or than the first row, where there is no header): row index -> reason."""
    found: dict[int, str] = {}
    with open_text(content) as text:
        if quote:
            reader = csv.reader(text, delimiter=separator, quotechar=quote)
        else:
            reader = csv.reader(text, delimiter=separator, quoting=csv.QUOTE_NONE)
        first = next((row for row in reader if row), [])
        for index, row in enumerate(reader, start=0 if has_header else 1):
            if len(row) > len(first):
                line = separator.join(row)
                found[index] = f"expected {len(first)} fields, got {len(row)} in {line[:200]!r}"
    return found


def find_bad_json_lines(content: Path | bytes) -> tuple[bytes, dict[int, str]]:
    """The lines with an empty object in place of each one that is no JSON object, and row index -> reason for those."""
    found: dict[int, str] = {}
    kept: list[str] = []
    with open_text(content) as text:
        for index, line in enumerate(_filled_lines(text)):
            try:
                if not isinstance(json.loads(line), dict):
                    raise ValueError("not an object")
            except ValueError:
                found[index] = f"expected a JSON object, got {line.strip()[:200]!r}"
                line = "{}"
            kept.append(line.strip())
    return "\n".join(kept).encode(), found


def _filled_lines(text: TextIO) -> Iterator[str]:
    return (line for line in text if line.strip())
