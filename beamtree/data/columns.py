"""The names of all columns, and the message for one that is missing."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from beamtree.errors import DataError, SettingsError

USER_ID: Final = "user_id"
ITEM_ID: Final = "item_id"
TIMESTAMP: Final = "timestamp"
RATING: Final = "rating"
CATEGORY: Final = "category"
TITLE: Final = "title"
GENRES: Final = "genres"

INTERACTION_COLUMNS: Final = (USER_ID, ITEM_ID, TIMESTAMP)
MAPPABLE_INTERACTION_COLUMNS: Final = (*INTERACTION_COLUMNS, RATING)
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


def require_column(name: str, *, wanted_as: str, present: Iterable[str], file: str) -> None:
    """DataError with the nearest names where a column is missing."""
    names = list(present)
    if name in names:
        return
    lowered = {candidate.lower(): candidate for candidate in names}
    near = [lowered[match] for match in get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)]
    guess = f" Nearest: {', '.join(near)}." if near else ""
    example = near[0] if near else "name_in_the_file"
    without = (
        " Where there are no times and the rows stand in their order: row_order=True, or --row-order."
        if wanted_as == TIMESTAMP
        else ""
    )
    raise DataError(
        f"{file}: no column {name!r}; it has {', '.join(names) or 'none'}.{guess} "
        f"Map the column: columns={{{wanted_as!r}: {example!r}}}, or --column {wanted_as}={example}.{without}"
    )
