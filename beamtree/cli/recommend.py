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
from beamtree.data.columns import CATEGORY, ITEM_ID, TITLE, USER_ID
from beamtree.data.interactions import read_log
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import InputError
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import Fallback, RecommendOptions
from beamtree.retrieval.tables import REQUEST, recommend_histories, recommend_users
from beamtree.storage import replace_file

Sink = Callable[[pl.LazyFrame, Path], object]

MAX_SHOWN_REASONS = 2

SINKS: dict[str, Sink] = {
    ".parquet": lambda table, path: table.sink_parquet(path),
    ".csv": lambda table, path: _flat(table).sink_csv(path),
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
    explain: Annotated[
        bool, typer.Option("--explain", help="What each part of the score gave, and because of which items.")
    ] = False,
) -> None:
    """Recommend items for one history, or for the users of a log."""
    if out is not None and out.suffix not in SINKS:
        raise InputError(f"--out takes a file ending in {', '.join(SINKS)}; got {out.name!r}.")
    if (history is None) == (log is None):
        raise InputError("Give either --history ID,ID,ID for one person, or --log LOG for the users of a log.")
    recommender = Recommender.load(model)
    items = recommender.artefact.items
    options = RecommendOptions(
        k=k,
        beam=beam,
        exclude_seen=exclude_seen,
        allow=_condition(allow),
        exclude=None if exclude is None else [items.parse(text) for text in _split(exclude)],
        fallback=fallback,
        explain=explain,
    )
    item_table = recommender.artefact.item_table
    if history is not None:
        wanted = [items.parse(text) for text in _split(history)]
        table = recommend_histories(recommender, [wanted], options=options)
        if table.is_empty():
            messages.print("There is no item that may be recommended here.", markup=False)
        elif table["score"].null_count():
            messages.print("The model knows no item of this history: these are the most popular ones.", markup=False)
        _write(iter([table]), item_table=item_table, out=out)
        return
    interactions = read_log(str(log), recommender.artefact.config.log)
    known_users = Vocabulary(interactions.frame[USER_ID].unique())
    wanted_users = None if users is None else [known_users.parse(text) for text in _split(users)]
    batches = recommend_users(recommender, interactions, users=wanted_users, options=options)
    _write(batches, item_table=item_table, out=out)


def _write(batches: Iterator[pl.DataFrame], *, item_table: pl.DataFrame, out: Path | None) -> None:
    if out is None:
        for batch in batches:
            _show(batch, item_table=item_table)
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


def _flat(table: pl.LazyFrame) -> pl.LazyFrame:
    """Lists of ids as texts, with spaces between the ids: CSV has no lists."""
    lists = [name for name, dtype in table.collect_schema().items() if isinstance(dtype, pl.List)]
    return table.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name in lists)


def _show(batch: pl.DataFrame, *, item_table: pl.DataFrame) -> None:
    key, *_ = batch.columns
    columns = [name for name in (TITLE, CATEGORY) if name in item_table and item_table[name].is_not_null().any()]
    named = batch.join(item_table.select(ITEM_ID, *columns), on=ITEM_ID, how="left", maintain_order="left")
    names = _names(item_table)
    numbers = ["rank", *(name for name, dtype in batch.schema.items() if dtype.is_float())]
    added = [name for name in batch.columns if name not in (key, ITEM_ID, "score", "rank", "reason_parts")]
    shown = ([key] if key != REQUEST else []) + ["rank", ITEM_ID, *columns, "score", *added]
    table = Table(header_style="bold")
    for name in shown:
        table.add_column(name.replace("because_of", "because of"), justify="right" if name in numbers else "left")
    for row in named.iter_rows(named=True):
        if row.get("because_of") is not None:
            reasons = list(zip(row["because_of"], row["reason_parts"], strict=True))[:MAX_SHOWN_REASONS]
            row["because_of"] = "; ".join(f"{names.get(item, str(item))} ({part})" for item, part in reasons)
        table.add_row(*(escape(_cell(row[name])) for name in shown))
    results.print(table)


def _names(item_table: pl.DataFrame) -> dict[object, str]:
    """Titles by id, where known."""
    if TITLE not in item_table:
        return {}
    titled = item_table.select(ITEM_ID, pl.col(TITLE).cast(pl.String)).drop_nulls()
    return dict(titled.iter_rows())


def _cell(value: object) -> str:
    if value is None or value == "":
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
