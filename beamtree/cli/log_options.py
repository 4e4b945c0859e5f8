"""Options for reading a log, shared by all commands that read one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from beamtree.cli.console import say
from beamtree.cli.option_groups import OptionGroup
from beamtree.cli.options import parse_pairs
from beamtree.config import ROW_ORDER, Config, LogSettings
from beamtree.config.data_sections import MIN_RATING, SINCE, UNTIL
from beamtree.data.columns import MAPPABLE_INTERACTION_COLUMNS, TIMESTAMP
from beamtree.data.interactions import InteractionLog, read_log
from beamtree.errors import InputError
from beamtree.progress import bullet_list

_option = partial(typer.Option, rich_help_panel="How the log is read")

BadRows = Literal["error", "skip"]


def _list_among_messages(lines: list[str]) -> None:
    say(bullet_list(lines))


@dataclass(frozen=True, kw_only=True)
class LogOptions(OptionGroup):
    """What was given of the options; None = not given."""

    column: Annotated[
        list[str] | None,
        _option(help=f"Name in the log: OURS=THEIRS, for {', '.join(MAPPABLE_INTERACTION_COLUMNS)}. Repeat as needed."),
    ] = None
    min_rating: Annotated[float | None, _option(help="Keep rows with at least this rating.")] = None
    event_type: Annotated[list[str] | None, _option(help="Keep rows by event: COLUMN=VALUE[,VALUE...].")] = None
    since: Annotated[str | None, _option(help="Keep rows from this time on: a number or a date.")] = None
    until: Annotated[str | None, _option(help="Keep rows before this time: a number or a date.")] = None
    no_filters: Annotated[bool | None, _option("--no-filters", help="Drop filters from the settings or the model.")] = (
        None
    )
    bad_rows: Annotated[BadRows | None, _option(help="error: stop at a bad row; skip: list it and continue.")] = None
    rejects: Annotated[Path | None, _option(help="Where --bad-rows=skip lists the bad rows.")] = None
    row_order: Annotated[
        bool | None, _option(help="The log has no timestamps; its rows are in chronological order.")
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

    def over(self, remembered: LogSettings) -> LogSettings:
        """The model's reading settings, overridden by the given options, column by column."""
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
        self, source: str, remembered: LogSettings, *, tell: Callable[[list[str]], None] = _list_among_messages
    ) -> InteractionLog:
        """Read a log for a model and report what was read."""
        log = read_log(source, self.over(remembered), rejects_file=self.rejects)
        tell(log.report.lines())
        return log


_NO_FILTERS: Mapping[str, Any] = {"keep": None, "event_weights": None, "target_events": ()}
