"""beamtree similar: the items nearest to an item."""

from typing import Annotated, Literal

import polars as pl
import typer

from beamtree.cli.console import results, say, text_table
from beamtree.cli.ids import describe_unknown, find_items
from beamtree.cli.options import ModelArgument
from beamtree.cli.output import OutOption, check_out, write_tables
from beamtree.data.columns import CATEGORY, ITEM_ID, TITLE
from beamtree.errors import UnknownIdsError
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.tables import similar_items


def similar(
    model: ModelArgument,
    *,
    item: Annotated[str, typer.Option("--item", help="Item ids: 50, or 50,181; a JSON list if ids contain commas.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of items.")] = 10,
    by: Annotated[
        Literal["embedding", "memory"] | None,
        typer.Option(
            help="embedding: cosine of the learned vectors; memory: how often they followed in the log. Default: the "
            "first that the model has."
        ),
    ] = None,
    out: OutOption = None,
) -> None:
    """Show the items that are most similar to one or more items."""
    check_out(out)
    recommender = Recommender.load(model)
    known, unknown = find_items(recommender, item, option="--item")
    if unknown:
        raise UnknownIdsError(f"{describe_unknown(recommender, unknown)}: nothing is near it.", unknown)
    table = similar_items(recommender, known, k=k, by=by)
    if out is not None:
        write_tables([table], out)
        return
    alone = [one for one in known if one not in set(table[ITEM_ID])]
    if alone:
        say(f"Nothing is known to be near {', '.join(map(str, alone))}.")
    _show(table, item_table=recommender.artefact.item_table)


def _show(table: pl.DataFrame, *, item_table: pl.DataFrame) -> None:
    columns = [name for name in (TITLE, CATEGORY) if name in item_table and item_table[name].is_not_null().any()]
    near = item_table.select(pl.col(ITEM_ID).alias("similar_id"), *columns)
    named = table.join(near, on="similar_id", how="left", maintain_order="left")
    shown = (ITEM_ID, "rank", "similar_id", *columns, "similarity")
    rows = [
        [*("-" if row[name] is None else row[name] for name in shown[:-1]), f"{row['similarity']:.3f}"]
        for row in named.iter_rows(named=True)
    ]
    headings = [name.replace("_id", " id") for name in shown]
    results.print(text_table(headings, rows, right=("rank", "similarity")))
