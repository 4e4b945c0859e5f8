"""A section of the page as plain text and tables, and numbers as table cells."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from beamtree.diagnostics.averages import Average
from beamtree.diagnostics.headlines import percent, unsigned_zero
from beamtree.diagnostics.report import Diagnostics

RowT = TypeVar("RowT")


@dataclass(frozen=True)
class Table:
    """Cells of text; texts: the columns that hold words, the others hold numbers; caption: above it, empty for none."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: tuple[int, ...] = (0,)
    caption: str = ""


def table_of(rows: Iterable[RowT], columns: Mapping[str, Callable[[RowT], str]], *last: tuple[str, ...]) -> Table:
    """A row for each record; columns: by heading, what is in the cell. last: rows below them."""
    cells = [tuple(cell_of(row) for cell_of in columns.values()) for row in rows]
    return Table(tuple(columns), (*cells, *last))


@dataclass(frozen=True)
class Section:
    """One diagnostic on the page. definition: how exactly the numbers are computed; reading: what they say, a paragraph
    a line; remedy: what to do about bad values. tables: below the definition, out of sight until asked for; shown:
    tables that are always seen.
    """

    key: str
    title: str
    meaning: str
    definition: str
    reading: str = ""
    plot: str = ""
    remedy: str = ""
    tables: tuple[Table, ...] = ()
    shown: tuple[Table, ...] = ()


def estimated(diagnostics: Diagnostics) -> str:
    """A sentence on the levels that were not scored whole; nothing where all were."""
    rough = [level.level for level in diagnostics.levels if not level.exact]
    if not rough:
        return ""
    return (
        f" Levels {_range(rough)} are too large to score whole (more than {diagnostics.subject.exact_nodes:,} nodes): "
        f"their numbers are estimated from {diagnostics.subject.draws} nodes of each kind per history, drawn down the "
        "tree in two ways and evenly."
    )


def _range(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def cell(value: Average, *, digits: int = 3) -> str:
    """A mean and its standard error."""
    error = "" if value.standard_error is None else f" ± {value.standard_error:.{digits}f}"
    return f"{unsigned_zero(value.mean, digits=digits)}{error}"


def share_cell(value: Average | None) -> str:
    """A share and its standard error in percent; a dash where there is none."""
    if value is None:
        return "-"
    return percent(value) + ("" if value.standard_error is None else f" ± {value.standard_error:.1%}")


def optional_cell(value: float | None, form: str) -> str:
    """A number in the given form; a dash where there is none."""
    return "-" if value is None else form.format(value)
