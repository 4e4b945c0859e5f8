"""The rows of a log's files, table by table: which are wanted, how their columns are parsed, and which are bad."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import polars as pl

from beamtree.data.columns import (
    EVENT_TYPE,
    ITEM_ID,
    LOG_MAPPER,
    MAPPABLE_INTERACTION_COLUMNS,
    RATING,
    TIMESTAMP,
    USER_ID,
    check_mapping,
    require_columns,
    require_event_columns,
)
from beamtree.data.context import with_context
from beamtree.data.events import EVENT_KINDS, EventTypes, parse_events
from beamtree.data.parse import ID_KINDS, NUMBER_KINDS, TIME_KINDS, parse_ids, parse_ratings, parse_times
from beamtree.data.read_report import Moment
from beamtree.data.rejects import REJECT_SCHEMA, SKIP_REMEDY, ParsedColumn, check_rows
from beamtree.data.tables import ROW_INDEX, BadRows, Source, Table, read_tables
from beamtree.errors import SettingsError

MOVIELENS_RATING_COLUMNS = (USER_ID, ITEM_ID, RATING, TIMESTAMP)
A_ROW_NUMBER = "the number of a row"


@dataclass(frozen=True)
class WantedRows:
    """The filters and columns of a log; see `read_interactions`. names: beamtree's name -> the name in the file."""

    names: Mapping[str, str]
    event_values: Mapping[str, list[str]]
    events: EventTypes | None
    min_rating: float | None
    context: Collection[str]
    since: Moment | None
    until: Moment | None
    row_order: bool

    @classmethod
    def of(
        cls,
        *,
        columns: Mapping[str, str] | None,
        min_rating: float | None,
        event_type: Mapping[str, Collection[str | int]] | None,
        event_weights: Mapping[str, float] | None,
        target_events: Collection[str] | None,
        context: Collection[str],
        since: Moment | None,
        until: Moment | None,
        row_order: bool,
    ) -> Self:
        """The arguments of `read_interactions`, checked: SettingsError for those that make no sense."""
        if row_order and (since is not None or until is not None):
            raise SettingsError(
                "since and until are about timestamps, and row_order reads none: leave one of them out."
            )
        mapping = check_mapping(columns, allowed=MAPPABLE_INTERACTION_COLUMNS)
        return cls(
            names={ours: mapping.get(ours, ours) for ours in MAPPABLE_INTERACTION_COLUMNS},
            event_values={
                name: [values] if isinstance(values, str) else [str(value) for value in values]
                for name, values in (event_type or {}).items()
            },
            events=EventTypes.of(event_weights, target_events),
            min_rating=min_rating,
            context=context,
            since=since,
            until=until,
            row_order=row_order,
        )

    @property
    def needed(self) -> dict[str, str]:
        """The columns that every file has to have, as in `names`."""
        wanted = {
            USER_ID: True,
            ITEM_ID: True,
            TIMESTAMP: not self.row_order,
            RATING: self.min_rating is not None,
            EVENT_TYPE: self.events is not None,
        }
        return {ours: self.names[ours] for ours, is_needed in wanted.items() if is_needed}

    def choose(self, table: Table) -> pl.DataFrame:
        """The rows that the filters on events and ratings let pass, with their row index; unreadable ratings pass."""
        frame = table.numbered()
        for name, values in self.event_values.items():
            frame = frame.filter(pl.col(name).cast(pl.String).is_in(values))
        if self.min_rating is not None:
            stars = parse_ratings(frame[self.names[RATING]])
            frame = frame.filter((stars >= self.min_rating).fill_null(True))
        if self.events is not None:
            types = parse_events(frame[self.names[EVENT_TYPE]])
            frame = frame.filter(~types.is_in(self.events.left_out).fill_null(False))
        return frame

    def columns(self, places_before: int) -> list[ParsedColumn]:
        """How the columns are parsed. places_before: of the rows of earlier files, for times by row order."""
        names = self.names
        parsed = [
            ParsedColumn(names[USER_ID], USER_ID, parse_ids, ID_KINDS),
            ParsedColumn(names[ITEM_ID], ITEM_ID, parse_ids, ID_KINDS),
            ParsedColumn(ROW_INDEX, TIMESTAMP, lambda rows: rows.cast(pl.Int64) + places_before, A_ROW_NUMBER)
            if self.row_order
            else ParsedColumn(names[TIMESTAMP], TIMESTAMP, parse_times, TIME_KINDS),
        ]
        if self.min_rating is not None:
            parsed.append(ParsedColumn(names[RATING], RATING, parse_ratings, NUMBER_KINDS))
        if self.events is not None:
            parsed.append(ParsedColumn(names[EVENT_TYPE], EVENT_TYPE, parse_events, EVENT_KINDS))
        return [*parsed, ParsedColumn(ROW_INDEX, ROW_INDEX, lambda rows: rows, A_ROW_NUMBER)]


class FileRows(NamedTuple):
    """What was read of one file. good: with ROW_INDEX, None for a file without columns; bad: of REJECT_SCHEMA.

    num_places: of its rows, and of empty lines before the last of them. untyped: columns whose file carries no types.
    """

    file: str
    good: pl.DataFrame | None
    bad: pl.DataFrame
    num_read: int
    num_places: int
    untyped: frozenset[str]


def read_rows(source: Source, wanted: WantedRows, *, bad_rows: BadRows) -> Iterator[FileRows]:
    """The wanted rows of every file of a source; a bad row is an error, or is set aside, as `bad_rows` says."""
    places_before = 0
    needed = wanted.needed
    for table in read_tables(
        source,
        wanted={*needed.values(), *wanted.event_values, *wanted.context},
        headerless=MOVIELENS_RATING_COLUMNS,
        bad_rows=bad_rows,
        remedy=SKIP_REMEDY,
    ):
        num_read = table.frame.height
        if not table.columns:
            yield FileRows(table.file, None, pl.DataFrame(schema=REJECT_SCHEMA), num_read, 0, frozenset())
            continue
        require_columns(needed, present=table.columns, file=table.file, mapper=LOG_MAPPER)
        require_event_columns(wanted.event_values, present=table.columns, file=table.file)
        chosen = wanted.choose(table)
        parsed, rejected = check_rows(chosen, columns=wanted.columns(places_before), table=table, bad_rows=bad_rows)
        good = with_context(parsed.drop(RATING, strict=False), chosen, names=wanted.context)
        yield FileRows(table.file, good, rejected, num_read, table.num_places, table.untyped)
        places_before += table.num_places
