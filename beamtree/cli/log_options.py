"""Options for reading a log, shared by all commands that read one.

A command takes them as one parameter, `reading: LogOptions`, and is decorated with `takes_log_options`.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from beamtree.cli.console import messages
from beamtree.cli.options import parse_pairs
from beamtree.config import ROW_ORDER, Config, LogSettings
from beamtree.config.data_sections import MIN_RATING, SINCE, UNTIL
from beamtree.data.columns import MAPPABLE_INTERACTION_COLUMNS, TIMESTAMP
from beamtree.data.interactions import InteractionLog, read_log
from beamtree.errors import InputError
from beamtree.progress import bullet_list

PANEL = "How the log is read"
PARAMETER = "reading"

BadRows = Literal["error", "skip"]


def _list_among_messages(lines: list[str]) -> None:
    messages.print(bullet_list(lines), markup=False, soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What was given of the options; None = not given."""

    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            help=f"Name in the log: OURS=THEIRS, for {', '.join(MAPPABLE_INTERACTION_COLUMNS)}. Repeat as needed.",
            rich_help_panel=PANEL,
        ),
    ] = None
    min_rating: Annotated[
        float | None, typer.Option("--min-rating", help="Keep rows with at least this rating.", rich_help_panel=PANEL)
    ] = None
    event_type: Annotated[
        list[str] | None,
        typer.Option("--event-type", help="Keep rows by event: COLUMN=VALUE[,VALUE...].", rich_help_panel=PANEL),
    ] = None
    since: Annotated[
        str | None,
        typer.Option("--since", help="Keep rows from this time on: a number or a date.", rich_help_panel=PANEL),
    ] = None
    until: Annotated[
        str | None,
        typer.Option("--until", help="Keep rows before this time: a number or a date.", rich_help_panel=PANEL),
    ] = None
    no_filters: Annotated[
        bool | None,
        typer.Option("--no-filters", help="Drop filters from the settings or the model.", rich_help_panel=PANEL),
    ] = None
    bad_rows: Annotated[
        BadRows | None,
        typer.Option("--bad-rows", help="error: stop at a bad row; skip: list it and continue.", rich_help_panel=PANEL),
    ] = None
    rejects: Annotated[
        Path | None,
        typer.Option("--rejects", help="Where --bad-rows=skip lists the bad rows.", rich_help_panel=PANEL),
    ] = None
    row_order: Annotated[
        bool | None,
        typer.Option(
            "--row-order/--no-row-order",
            help="The log has no timestamps; its rows are in chronological order.",
            rich_help_panel=PANEL,
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Settings of the section `log` for those options that were given."""
        events = parse_pairs(self.event_type, option="--event-type", form="COLUMN=VALUE[,VALUE...]")
        keep: dict[str, Any] = {MIN_RATING: self.min_rating, SINCE: self.since, UNTIL: self.until}
        keep |= {name: values.split(",") for name, values in events.items()}
        if not self.no_filters or any(keep.values()):
            keep = {name: value for name, value in keep.items() if value is not None or self.no_filters}
        given = {"columns": self._columns(), "keep": keep, "bad_rows": self.bad_rows}
        without = _NO_FILTERS if self.no_filters else {}
        return {**without, **{name: value for name, value in given.items() if value not in (None, {})}}

    def given(self) -> list[str]:
        """The names of the options that were given."""
        return [
            f"--{field.name.replace('_', '-')}" for field in fields(self) if getattr(self, field.name) not in (None, [])
        ]

    def over(self, remembered: LogSettings) -> LogSettings:
        """What a model remembers of its log, changed for another log: what is given wins, columns one by one."""
        given, kept = self.settings(), remembered.model_dump()
        columns, keep = dict(kept["columns"]), dict(kept["keep"])
        if given.get("columns", {}).get(TIMESTAMP) == ROW_ORDER:
            keep = {name: value for name, value in keep.items() if name not in (SINCE, UNTIL)}
            kept["half_life_days"] = None
        elif remembered.row_order and (self.row_order is False or self.since or self.until):
            del columns[TIMESTAMP]
        if self.no_filters:
            keep = {}
        elif self.event_type:
            keep = {name: value for name, value in keep.items() if not isinstance(value, list)}
        changed = {"columns": {**columns, **given.get("columns", {})}, "keep": {**keep, **(given.get("keep") or {})}}
        return Config.resolve({"log": {**kept, **given, **changed}}).log

    def _columns(self) -> dict[str, str]:
        """Our names of columns -> those of the log, the row order in place of timestamps among them."""
        columns = parse_pairs(self.column, option="--column", form="OURS=THEIRS")
        if self.row_order and TIMESTAMP in columns:
            raise InputError(
                f"--row-order reads no timestamps, --column timestamp={columns[TIMESTAMP]} names them: leave one out."
            )
        if self.row_order is None or TIMESTAMP in columns:
            return columns
        return {**columns, TIMESTAMP: ROW_ORDER if self.row_order else TIMESTAMP}

    def read(
        self, source: str, remembered: LogSettings, *, say: Callable[[list[str]], None] = _list_among_messages
    ) -> InteractionLog:
        """Read a log for a model and say what was read."""
        log = read_log(source, self.over(remembered), rejects_file=self.rejects)
        say(log.report.lines())
        return log


_NO_FILTERS: Mapping[str, Any] = {"keep": None, "event_weights": None, "target_events": ()}


def takes_log_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of a log in place of its parameter `reading`."""
    signature, hints = inspect.signature(command), get_type_hints(LogOptions, include_extras=True)
    names = [field.name for field in fields(LogOptions)]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hints[name]) for name in names
    ]
    own = [parameter for parameter in signature.parameters.values() if parameter.name != PARAMETER]

    @wraps(command)
    def spread(*arguments: Any, **given: Any) -> None:
        reading = LogOptions(**{name: given.pop(name) for name in names})
        command(*arguments, **given, **{PARAMETER: reading})

    spread.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return spread
