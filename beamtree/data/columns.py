"""The names of all columns, and the message for those that are missing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from re import sub
from typing import Final

from beamtree.errors import DataError, SettingsError

USER_ID: Final = "user_id"
ITEM_ID: Final = "item_id"
TIMESTAMP: Final = "timestamp"
RATING: Final = "rating"
EVENT_TYPE: Final = "event_type"
WEIGHT: Final = "weight"
CATEGORY: Final = "category"
TITLE: Final = "title"
GENRES: Final = "genres"

INTERACTION_COLUMNS: Final = (USER_ID, ITEM_ID, TIMESTAMP)
WEIGHTED_COLUMNS: Final = (*INTERACTION_COLUMNS, WEIGHT)
MAPPABLE_INTERACTION_COLUMNS: Final = (*INTERACTION_COLUMNS, RATING, EVENT_TYPE)
CONTEXT_PREFIX: Final = "context."
"""In front of the names of a log's context columns, so that they meet no other column."""
MAPPABLE_ITEM_COLUMNS: Final = (ITEM_ID, CATEGORY, TITLE)


def check_mapping(columns: Mapping[str, str] | None, *, allowed: tuple[str, ...]) -> dict[str, str]:
    """The mapping from beamtree's column names to the file's, checked: SettingsError for a name that is not ours."""
    mapping = dict(columns or {})
    unknown = [name for name in mapping if name not in allowed]
    if unknown:
        raise SettingsError(
            f"columns maps beamtree's names to those of the file; it knows {', '.join(allowed)}, got {unknown[0]!r}. "
            f"Write for example columns={{{allowed[0]!r}: 'name_in_the_file'}}."
        )
    return mapping


@dataclass(frozen=True)
class Mapper:
    """Who maps columns, for messages: the function in Python and the option of the commands."""

    function: str
    option: str


LOG_MAPPER: Final = Mapper("read_interactions", "--column")
ITEM_MAPPER: Final = Mapper("read_items", "--item-column")
USER_MAPPER: Final = Mapper("read_users", "--column")

_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    USER_ID: ("user", "uid", "customer", "client", "visitor", "member", "account", "session", "reviewer", "person"),
    ITEM_ID: ("item", "iid", "sku", "product", "article", "movie", "film", "book", "song", "track", "video", "asin"),
    TIMESTAMP: ("time", "ts", "date", "datetime", "day", "created", "when", "moment", "unixtime"),
    RATING: ("rating", "stars", "score", "rate"),
    EVENT_TYPE: ("event", "action", "behavior", "behaviour", "activity", "type"),
    CATEGORY: ("category", "genre", "genres", "class", "type", "department", "group"),
    TITLE: ("title", "name", "label", "headline", "description"),
}
"""Words that columns of other logs are named by."""


def require_columns(names: Mapping[str, str], *, present: Iterable[str], file: str, mapper: Mapper) -> None:
    """DataError that names all missing columns, with the likeliest of those that nothing else is read from.

    names: beamtree's name -> the name in the file.
    """
    there = list(present)
    missing = {ours: theirs for ours, theirs in names.items() if theirs not in there}
    if not missing:
        return
    free = [name for name in there if name not in names.values()]
    guesses: dict[str, str] = {}
    for ours, theirs in missing.items():
        guess = _guess(ours, theirs, [name for name in free if name not in guesses.values()])
        if guess is not None:
            guesses[ours] = guess
    said = ", ".join(f"{theirs!r}" if ours == theirs else f"{theirs!r} (as {ours})" for ours, theirs in missing.items())
    examples = {ours: guesses.get(ours, "NAME") for ours in missing}
    options = " ".join(f"{mapper.option} {ours}={theirs}" for ours, theirs in examples.items())
    without = (
        " Where there are no times and the rows are in order: row_order=True in place of it, or --row-order."
        if TIMESTAMP in missing
        else ""
    )
    columns = "columns" if len(missing) > 1 else "column"
    raise DataError(
        f"{file}: no {columns} {said}; it has {', '.join(there) or 'none'}. "
        f"Map the {columns}: {mapper.function}(..., columns={examples!r}), or {options}.{without}"
    )


def require_event_columns(names: Iterable[str], *, present: Iterable[str], file: str) -> None:
    """DataError for the first column that an event filter needs and the file does not have."""
    there = list(present)
    for name in names:
        if name not in there:
            raise DataError(
                f"{file}: no column {name!r} to filter events by; it has {', '.join(there) or 'none'}. Name another "
                "column with event_type (--event-type COLUMN=VALUE), or read all rows: event_type=None (--no-filters)."
            )


def _guess(ours: str, theirs: str, free: Sequence[str]) -> str | None:
    """The most likely column: our name for it, a common synonym, or a similar spelling."""
    if ours in free:
        return ours
    for alias in (theirs.lower(), *_ALIASES.get(ours, ())):
        for name in free:
            if alias in _words(name):
                return name
    lowered = {name.lower(): name for name in free}
    near = get_close_matches(theirs.lower(), lowered, n=1, cutoff=0.7)
    return lowered[near[0]] if near else None


def _words(name: str) -> list[str]:
    """The words of a column name: customerId, customer_id and customer-id have two; with the name as a whole."""
    spaced = sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", " ", name)
    return [name.lower(), *spaced.lower().split()]
