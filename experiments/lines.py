"""Measured lines on disk, JSON, one line each, and what tables of them share."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beamtree.compare.summary import Result
from beamtree.errors import DataError

ROOT = Path(__file__).resolve().parents[1]
METRICS = ("f@20", "ndcg@20")
NUMBER = re.compile(r"[-+]?\d|$")
Line = dict[str, Any]


def append_lines(file: Path, lines: Sequence[Line]) -> None:
    """Append lines in one write."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write("".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))


def read_lines(file: Path) -> list[Line]:
    """All lines of a file, none where there is no file; DataError names a line that is not JSON."""
    lines: list[Line] = []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines() if file.is_file() else (), start=1):
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError as error:
            raise DataError(f"{file}, line {number} is not JSON ({error}). Remove it and measure it again.") from error
    return lines


def with_users(result: Result, per_user: dict[str, list[float]], *, label: str) -> Result:
    """A result under another label, with other answers of its users."""
    means = {name: float(np.mean(values)) for name, values in per_user.items()}
    return {**result, "label": label, "per_user": per_user, "metrics": means}


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; columns of numbers are aligned to the right."""
    rule = ["---:" if all(NUMBER.match(cell) for cell in column) else "---" for column in zip(*rows, strict=True)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *rows])


def ratio_cell(ratios: Sequence[Sequence[float]]) -> str:
    """The mean of ratios over lines, those of the ends of their intervals too; empty without any."""
    return "{:.3f} [{:.3f}, {:.3f}]".format(*np.mean(ratios, axis=0)) if len(ratios) else ""
