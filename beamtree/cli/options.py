"""Options that several commands share, spelled once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from beamtree.data.columns import MAPPABLE_INTERACTION_COLUMNS
from beamtree.errors import SettingsError

BadRows = Literal["error", "skip"]

ModelArgument = Annotated[Path, typer.Argument(help="Folder of a saved model.", metavar="MODEL")]
LogArgument = Annotated[
    str, typer.Argument(help="Interaction log: a file, folder or glob of CSV, TSV, Parquet or NDJSON.", metavar="LOG")
]
LogOption = Annotated[str, typer.Option("--log", help="Interaction log: a file, a folder or a glob.")]
ItemsOption = Annotated[str | None, typer.Option("--items", help="Item table with item_id, category, title, ...")]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option("--column", help=f"Name in the file: OURS=THEIRS, for {', '.join(MAPPABLE_INTERACTION_COLUMNS)}."),
]
MinRatingOption = Annotated[float | None, typer.Option("--min-rating", help="Keep rows with at least this rating.")]
EventTypeOption = Annotated[
    list[str] | None, typer.Option("--event-type", help="Keep rows by event: COLUMN=VALUE[,VALUE...].")
]
SinceOption = Annotated[str | None, typer.Option("--since", help="Keep rows from this time on: a number or a date.")]
UntilOption = Annotated[str | None, typer.Option("--until", help="Keep rows before this time: a number or a date.")]
BadRowsOption = Annotated[
    BadRows | None, typer.Option("--bad-rows", help="error: stop at a bad row; skip: list it, go on.")
]
RejectsOption = Annotated[Path | None, typer.Option("--rejects", help="Where --bad-rows=skip lists the bad rows.")]
RowOrderOption = Annotated[
    bool | None, typer.Option("--row-order", help="The log has no timestamps; its rows stand in the order of time.")
]
BeamOption = Annotated[int | None, typer.Option("--beam", min=1, help="Beam width; default: the model's.")]


def log_settings(
    *,
    column: list[str] | None,
    min_rating: float | None,
    event_type: list[str] | None,
    since: str | None,
    until: str | None,
    bad_rows: BadRows | None,
    row_order: bool | None,
) -> dict[str, Any]:
    """Settings of the section `log` for those options that were given."""
    events = parse_pairs(event_type, option="--event-type", form="COLUMN=VALUE[,VALUE...]")
    given = {
        "columns": parse_pairs(column, option="--column", form="OURS=THEIRS"),
        "min_rating": min_rating,
        "event_type": {name: values.split(",") for name, values in events.items()},
        "since": since,
        "until": until,
        "bad_rows": bad_rows,
        "row_order": row_order,
    }
    return {name: value for name, value in given.items() if value not in (None, {})}


def parse_pairs(texts: Sequence[str] | None, *, option: str, form: str) -> dict[str, str]:
    """`name=value` texts as a mapping; SettingsError names the option where one is misspelt."""
    mapping: dict[str, str] = {}
    for text in texts or []:
        name, separator, value = text.partition("=")
        if not (separator and name and value):
            raise SettingsError(f"{option} takes {form}, got {text!r}.")
        mapping[name] = value
    return mapping


def estimators_beside(model: Path) -> Path:
    """Where the estimators of a model folder are kept unless told otherwise."""
    folder = model.absolute()
    return folder.parent / f"{folder.name}.estimator"
