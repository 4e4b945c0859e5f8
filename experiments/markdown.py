"""Pieces of Markdown that all parts of the report use."""

import re

from beamtree.config import Config
from beamtree.errors import SettingsError
from beamtree.evaluation.protocol import describe_protocol
from experiments.results import Line

NUMBER = re.compile(r"[-+]?\d|$")


def describe_asked(lines: list[Line]) -> str:
    """The protocol of the lines, in words, and how many users were asked."""
    found = []
    for line in lines:
        try:
            protocol = describe_protocol(Config.recorded(line["settings"]["config"]))
        except SettingsError:
            protocol = f"protocol {line['protocol']}"
        sentence = f"{line['users']:,} {line['split']} users, {protocol}."
        if sentence not in found:
            found.append(sentence)
    return " ".join(found)


def compact(value: object) -> str:
    """A setting in few characters."""
    return f"{value:g}" if isinstance(value, float) else str(value).replace(" ", "")


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table; columns of numbers are aligned to the right."""
    columns = zip(*rows, strict=True)
    rule = ["---:" if all(NUMBER.match(cell) for cell in column) else "---" for column in columns]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *rows])
