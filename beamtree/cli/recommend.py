"""beamtree recommend: for one history at once, or for all users of a log into a file."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from beamtree.cli.console import messages, results
from beamtree.cli.options import BeamOption, ModelArgument, parse_pairs
from beamtree.data.columns import USER_ID
from beamtree.data.interactions import read_log
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import InputError
from beamtree.retrieval.retriever import Fallback, Retriever, Wishes
from beamtree.storage import replace_file

Sink = Callable[[pl.LazyFrame, Path], object]

SINKS: dict[str, Sink] = {
    ".parquet": lambda table, path: table.sink_parquet(path),
    ".csv": lambda table, path: table.sink_csv(path),
    ".ndjson": lambda table, path: table.sink_ndjson(path),
    ".jsonl": lambda table, path: table.sink_ndjson(path),
}


def recommend(
    model: ModelArgument,
    *,
    history: Annotated[str | None, typer.Option(help="Item ids of one person, oldest first: 50,181,172.")] = None,
    log: Annotated[str | None, typer.Option(help="A log: recommend for its users.")] = None,
    users: Annotated[str | None, typer.Option(help="Only these users of the log: 7,8,9.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write: .parquet, .csv or .ndjson.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many items each.")] = 20,
    beam: BeamOption = None,
    exclude_seen: Annotated[bool | None, typer.Option(help="Leave out what the history holds.")] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="Only items whose column has one of these values: category=Drama,Comedy.")
    ] = None,
    exclude: Annotated[str | None, typer.Option(help="Item ids that nobody may get: 1,2,3.")] = None,
    fallback: Annotated[
        Fallback, typer.Option(help="For histories without any known item: popular items, or an error.")
    ] = "popularity",
) -> None:
    """Recommend items for one history, or for the users of a log."""
    if out is not None and out.suffix not in SINKS:
        raise InputError(f"--out takes a file ending in {', '.join(SINKS)}; got {out.name!r}.")
    if (history is None) == (log is None):
        raise InputError("Give either --history ID,ID,ID for one person, or --log LOG for the users of a log.")
    retriever = Retriever.load(model)
    items = retriever.artefact.items
    wishes = Wishes(
        k=k,
        beam_width=beam,
        exclude_seen=exclude_seen,
        allow=_condition(allow),
        exclude=None if exclude is None else [items.parse(text) for text in _split(exclude)],
        without_known_items=fallback,
    )
    if history is not None:
        wanted = [items.parse(text) for text in _split(history)]
        _write(iter([retriever.recommend_histories([wanted], **wishes)]), retriever=retriever, out=out)
        return
    interactions = read_log(str(log), retriever.artefact.config.log)
    known_users = Vocabulary(interactions.frame[USER_ID].unique())
    wanted_users = None if users is None else [known_users.parse(text) for text in _split(users)]
    batches = retriever.recommend_users(interactions, wanted_users, **wishes)
    _write(batches, retriever=retriever, out=out)


def _write(batches: Iterator[pl.DataFrame], *, retriever: Retriever, out: Path | None) -> None:
    if out is None:
        for batch in batches:
            _show(batch, item_table=retriever.artefact.item_table)
        return
    if not out.parent.is_dir():
        raise InputError(f"The folder {out.parent} does not exist: make it first, or give another --out.")
    rows = 0
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as parts:
        for number, batch in enumerate(track(batches, description="recommending", console=messages, transient=True)):
            batch.write_parquet(Path(parts) / f"{number:09d}.parquet")
            rows += len(batch)
        replace_file(out, lambda path: SINKS[out.suffix](pl.scan_parquet(f"{parts}/*.parquet"), path))
    messages.print(f"Wrote {rows:,} rows to {out}.", markup=False)


def _show(batch: pl.DataFrame, *, item_table: pl.DataFrame) -> None:
    columns = [name for name in ("title", "category") if item_table[name].null_count() < len(item_table)]
    named = batch.join(item_table.select("item_id", *columns), on="item_id", how="left", maintain_order="left")
    key = batch.columns[0]
    table = Table(header_style="bold")
    shown = ([key] if key != "request" else []) + ["rank", "item_id", *columns, "score"]
    for name in shown:
        table.add_column(name, justify="right" if name in ("rank", "score") else "left")
    for row in named.iter_rows(named=True):
        table.add_row(*(escape(_cell(row[name])) for name in shown))
    results.print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _condition(allow: list[str] | None) -> pl.Expr | None:
    """All of the given columns must have one of their values."""
    conditions = [
        pl.col(column).cast(pl.String).is_in(_split(values))
        for column, values in parse_pairs(allow, option="--allow", form="COLUMN=VALUE[,VALUE...]").items()
    ]
    return pl.all_horizontal(conditions) if conditions else None
