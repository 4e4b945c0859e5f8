"""beamtree data: list public data sets, fetch one, describe a log."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from beamtree.cli.console import messages, results
from beamtree.cli.log_options import LogOptions
from beamtree.cli.option_groups import takes_option_groups
from beamtree.config import Config
from beamtree.data.dataset import DEFAULT_MIN_INTERACTIONS
from beamtree.data.describe import LogDescription, describe_log
from beamtree.data.interactions import read_log
from beamtree.data.prepare import decide, explain_decisions
from beamtree.data.public import PublicFiles, cache_directory, fetch
from beamtree.data.registry import PUBLIC_DATASETS
from beamtree.progress import bullet_list

app = typer.Typer(help="Public data sets, and statistics of a log.", no_args_is_help=True)

BAR_WIDTH = 40


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
    results.print(table)
    results.print(f"Kept in {cache_directory() / 'data'} (set BEAMTREE_CACHE to change it).", soft_wrap=True)
    results.print("Fetch one: beamtree data get NAME", soft_wrap=True)


@app.command("get")
def get_command(
    name: Annotated[str, typer.Argument(help="A name from `beamtree data list`.")],
    original: Annotated[
        Path | None,
        typer.Option("--from", help="Read the original files from this folder instead of downloading them."),
    ] = None,
) -> None:
    """Fetch a public data set into the cache and print the paths of its files."""
    with messages.status(f"getting {name}") as status:

        def say(message: str) -> None:
            status.update(message)
            if " failed: " in message:
                messages.print(f"[yellow]{message}[/yellow]", soft_wrap=True)

        files = fetch(name, original=original, say=say)
    _print_files(name, files)


def _print_files(name: str, files: PublicFiles) -> None:
    results.print(f"[bold]{name}[/bold] from {files.source}", soft_wrap=True)
    if files.note:
        results.print(f"note: {files.note}", soft_wrap=True)
    results.print(f"interactions  {files.interactions}", soft_wrap=True)
    items = "" if files.items is None else f" --items {files.items}"
    if files.items is not None:
        results.print(f"items         {files.items}", soft_wrap=True)
    results.print(f"next: beamtree fit {files.interactions}{items}", soft_wrap=True)


@app.command("describe")
@takes_option_groups
def describe_command(
    path: Annotated[str, typer.Argument(help="A log: file, folder or glob; or the name of a public data set.")],
    *,
    min_interactions: Annotated[
        int, typer.Option("--min-interactions", help="The minimum history length to report on.", min=1)
    ] = DEFAULT_MIN_INTERACTIONS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    reading: LogOptions,
) -> None:
    """Show users, items, interactions, history lengths, popularity, time span and the defaults of a fit."""
    if path in PUBLIC_DATASETS and not Path(path).exists():
        path = str(fetch(path).interactions)
    log = read_log(path, Config.resolve({"log": reading.settings()}).log, rejects_file=reading.rejects)
    description = describe_log(log, min_interactions=min_interactions)
    if as_json:
        typer.echo(json.dumps({"reading": asdict(log.report), **asdict(description)}))
        return
    for line in log.report.lines():
        results.print(line, soft_wrap=True)
    _print_description(description)
    if description.kept is not None:
        decided = decide(Config(), description.kept)
        said = bullet_list(explain_decisions(description.kept, config=decided))
        results.print(f"A fit would say:\n{said}", soft_wrap=True)


def _print_description(found: LogDescription) -> None:
    results.print(_summary_table(found))
    results.print(
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
    results.print(curve)


def _summary_table(found: LogDescription) -> Table:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right", overflow="fold")
    whole, kept = found.profile, found.kept
    for name, value in (("users", whole.users), ("items", whole.items), ("interactions", whole.interactions)):
        table.add_row(name, f"{value:,}")
    table.add_row("density", f"{whole.density:.3%}")
    table.add_row(
        "history length",
        f"{whole.shortest_history:,} to {whole.longest_history:,}, median {whole.median_history:,}",
    )
    table.add_row("first", found.first_date or f"{found.first_time:,.0f} (no date)")
    table.add_row("last", found.last_date or f"{found.last_time:,.0f} (no date)")
    table.add_row("repeats by the same user", f"{whole.repeat_share:.1%}")
    table.add_row("order known only from the file", f"{whole.tied_share:.1%}")
    if whole.tied_pairs:
        table.add_row("of that in the order of the items", f"{whole.sorted_share:.1%}")
    for name, some, all_of_them in (
        ("users", 0 if kept is None else kept.users, whole.users),
        ("items", 0 if kept is None else kept.items, whole.items),
        ("interactions", 0 if kept is None else kept.interactions, whole.interactions),
    ):
        label = f"{name} kept by {found.min_interactions}+ interactions"
        table.add_row(label, f"{some:,} ({some / all_of_them:.1%})")
    if kept is not None:
        table.add_row(f"users to hold out from, {kept.long_history}+ interactions", f"{kept.long_users:,}")
        table.add_row("users that are only learned from", f"{kept.users - kept.long_users:,}")
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
