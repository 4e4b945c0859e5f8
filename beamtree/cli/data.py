"""beamtree data: list public data sets, fetch one, describe a log."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.table import Table

from beamtree.data.columns import MAPPABLE_INTERACTION_COLUMNS
from beamtree.data.dataset import DEFAULT_MIN_INTERACTIONS
from beamtree.data.describe import LogDescription, describe_log
from beamtree.data.interactions import InteractionLog, read_interactions
from beamtree.data.public import PublicFiles, cache_directory, fetch
from beamtree.data.registry import PUBLIC_DATASETS
from beamtree.data.tables import BadRows
from beamtree.errors import SettingsError

app = typer.Typer(help="Public data sets, and what a log looks like.", no_args_is_help=True)

BAR_WIDTH = 40

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
BadRowsOption = Annotated[str, typer.Option("--bad-rows", help="error: stop at a bad row; skip: list it and go on.")]
RejectsOption = Annotated[Path | None, typer.Option("--rejects", help="Where --bad-rows=skip lists the bad rows.")]


def read_log(
    path: str,
    *,
    column: list[str] | None = None,
    min_rating: float | None = None,
    event_type: list[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    bad_rows: str = "error",
    rejects: Path | None = None,
) -> InteractionLog:
    """Read a log with the options as a command line spells them; SettingsError for one that is misspelt."""
    return read_interactions(
        path,
        columns=parse_pairs(column, option="--column", form="OURS=THEIRS"),
        min_rating=min_rating,
        event_type={
            name: values.split(",")
            for name, values in parse_pairs(event_type, option="--event-type", form="COLUMN=VALUE,VALUE").items()
        },
        since=since,
        until=until,
        bad_rows=cast(BadRows, bad_rows),
        rejects_file=rejects,
    )


def parse_pairs(given: list[str] | None, *, option: str, form: str) -> dict[str, str]:
    """Options such as a=b as a dictionary; SettingsError where one has no equals sign or a side is empty."""
    pairs = {}
    for text in given or []:
        name, _, value = text.partition("=")
        if not name or not value:
            raise SettingsError(f"{option} is written {form}, got {text!r}.")
        pairs[name] = value
    return pairs


@app.command("list")
def list_command() -> None:
    """Show the public data sets that beamtree can fetch."""
    table = Table(title="Public data sets", title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("what it is")
    table.add_column("comes from", overflow="fold")
    table.add_column("fetched")
    for entry in PUBLIC_DATASETS.values():
        origins = [source.files[0].origin for source in entry.sources] or [f"by hand: {entry.page}"]
        fetched = (cache_directory() / "data" / entry.name).is_dir()
        what = f"{entry.summary}\n[dim]{entry.size}[/dim]"
        table.add_row(entry.name, what, "\n".join(origins), "yes" if fetched else "no", end_section=True)
    console = Console()
    console.print(table)
    console.print(f"Kept in {cache_directory() / 'data'} (set BEAMTREE_CACHE to change it).", soft_wrap=True)
    console.print("Fetch one: beamtree data get NAME", soft_wrap=True)


@app.command("get")
def get_command(
    name: Annotated[str, typer.Argument(help="A name from `beamtree data list`.")],
    original: Annotated[
        Path | None, typer.Option("--from", help="Read the original files from here instead of fetching them.")
    ] = None,
) -> None:
    """Fetch a public data set into the cache and print the paths of its files."""
    console, notes = Console(), Console(stderr=True)
    with notes.status(f"getting {name}") as status:

        def say(message: str) -> None:
            status.update(message)
            if " failed: " in message:
                notes.print(f"[yellow]{message}[/yellow]; trying the next source", soft_wrap=True, highlight=False)

        files = fetch(name, original=original, say=say)
    _print_files(console, name, files)


def _print_files(console: Console, name: str, files: PublicFiles) -> None:
    console.print(f"[bold]{name}[/bold] from {files.source}", soft_wrap=True, highlight=False)
    if files.note:
        console.print(f"note: {files.note}", soft_wrap=True)
    console.print(f"interactions  {files.interactions}", soft_wrap=True, highlight=False)
    items = "" if files.items is None else f" --items {files.items}"
    if files.items is not None:
        console.print(f"items         {files.items}", soft_wrap=True, highlight=False)
    console.print(f"next: beamtree fit {files.interactions}{items}", soft_wrap=True, highlight=False)


@app.command("describe")
def describe_command(
    path: Annotated[str, typer.Argument(help="A log: file, folder or glob; or the name of a public data set.")],
    column: ColumnOption = None,
    min_rating: MinRatingOption = None,
    event_type: EventTypeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    bad_rows: BadRowsOption = "error",
    rejects: RejectsOption = None,
    min_interactions: Annotated[
        int, typer.Option("--min-interactions", help="The filter on users to report on.", min=1)
    ] = DEFAULT_MIN_INTERACTIONS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count users, items and interactions; show history lengths, popularity, time span and what the filter keeps."""
    if path in PUBLIC_DATASETS and not Path(path).exists():
        path = str(fetch(path).interactions)
    log = read_log(
        path,
        column=column,
        min_rating=min_rating,
        event_type=event_type,
        since=since,
        until=until,
        bad_rows=bad_rows,
        rejects=rejects,
    )
    description = describe_log(log, min_interactions=min_interactions)
    if as_json:
        typer.echo(json.dumps({"reading": asdict(log.report), **asdict(description)}))
        return
    console = Console()
    for line in log.report.lines():
        console.print(line, soft_wrap=True)
    _print_description(console, description)


def _print_description(console: Console, found: LogDescription) -> None:
    console.print(_summary_table(found))
    console.print(
        _bar_table(
            "History lengths",
            ("interactions", "users"),
            [
                (f"{part.shortest:,}" + (f"-{part.longest:,}" if part.longest > part.shortest else ""), part.users)
                for part in found.length_bins
            ],
        )
    )
    curve = Table(title="Popularity", title_justify="left")
    curve.add_column("top items", justify="right")
    curve.add_column("interactions", justify="right")
    curve.add_column("")
    for share, received in found.popularity_curve.items():
        curve.add_row(f"{share:.0%}", f"{received:.1%}", "█" * round(received * BAR_WIDTH))
    console.print(curve)


def _summary_table(found: LogDescription) -> Table:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right", overflow="fold")
    for name, value in (("users", found.users), ("items", found.items), ("interactions", found.interactions)):
        table.add_row(name, f"{value:,}")
    table.add_row("density", f"{found.density:.3%}")
    quantiles = found.length_quantiles
    table.add_row("history length", f"{quantiles[0.0]:,} to {quantiles[1.0]:,}, median {quantiles[0.5]:,}")
    table.add_row("first", found.first_date or f"{found.first_time:,.0f} (no date)")
    table.add_row("last", found.last_date or f"{found.last_time:,.0f} (no date)")
    table.add_row("repeats by the same user", f"{found.repeat_share:.1%}")
    table.add_row("order known only from the file", f"{found.tied_share:.1%}")
    kept = found.kept
    for name, some, all_of_them in (
        ("users", kept.users, found.users),
        ("items", kept.items, found.items),
        ("interactions", kept.interactions, found.interactions),
    ):
        label = f"{name} kept by {kept.min_interactions}+ interactions"
        table.add_row(label, f"{some:,} ({some / all_of_them:.1%})")
    return table


def _bar_table(title: str, headings: tuple[str, str], rows: list[tuple[str, int]]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right")
    table.add_column("")
    largest = max(count for _, count in rows)
    for label, count in rows:
        table.add_row(label, f"{count:,}", "█" * round(count / largest * BAR_WIDTH))
    return table
