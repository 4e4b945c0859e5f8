"""beamtree score: scores of given items, for pairs of a user and an item or for one history."""

from typing import Annotated

import polars as pl
import typer
from rich.markup import escape
from rich.table import Table

from beamtree.cli.console import messages, results
from beamtree.cli.ids import describe_unknown, find_items
from beamtree.cli.log_options import LogOptions, takes_log_options
from beamtree.cli.options import ContextOption, ModelArgument, UserFeatureOption, UserTableOption, parse_pairs
from beamtree.cli.output import OutOption, check_out, write_tables
from beamtree.data.request_features import typed_values
from beamtree.data.users import read_users
from beamtree.errors import InputError
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.scoring import read_pairs, score_histories, score_pairs


@takes_log_options
def score(
    model: ModelArgument,
    *,
    pairs: Annotated[
        str | None, typer.Option(help="Table of pairs with user_id and item_id (or the names in the log).")
    ] = None,
    log: Annotated[str | None, typer.Option(help="The log with the histories of these users.")] = None,
    history: Annotated[str | None, typer.Option(help="Item ids of one history, oldest first: 50,181,172.")] = None,
    item: Annotated[str | None, typer.Option(help="Items to score for that history: 7,8,9.")] = None,
    user_table: UserTableOption = None,
    user_feature: UserFeatureOption = None,
    context: ContextOption = None,
    out: OutOption = None,
    reading: LogOptions,
) -> None:
    """Score given items: pairs of a user of a log and an item, or items for one history.

    A pair has no score where the model does not know the item, or neither an item of the history nor a feature of who
    asks.
    """
    check_out(out)
    for_pairs, for_history = (pairs is not None, log is not None), (history is not None, item is not None)
    if not (all(for_pairs) and not any(for_history)) and not (all(for_history) and not any(for_pairs)):
        raise InputError("Give either --pairs TABLE and --log LOG, or --history ID,ID,ID and --item ID,ID.")
    if log is None and reading.given():
        raise InputError(f"{' and '.join(reading.given())} are about a log: leave them out.")
    if log is None and user_table is not None:
        raise InputError("--user-table is about the users of a log: give --pairs and --log, or --user-feature.")
    if history is None and user_feature:
        raise InputError("--user-feature is about one person: give --history, or --user-table for the users of a log.")
    recommender = Recommender.load(model)
    read = recommender.artefact.request_features
    around = typed_values(parse_pairs(context, option="--context", form="COLUMN=VALUE"), read.context)
    if log is not None:
        remembered = recommender.artefact.config.log
        table = read_pairs(pairs, columns=reading.over(remembered).columns)
        known_users = None if user_table is None else read_users(user_table, columns=remembered.columns)
        scored = score_pairs(recommender, reading.read(log, remembered), table, user_table=known_users, context=around)
    else:
        known, unknown = find_items(recommender, str(history), option="--history")
        wanted, no_items = find_items(recommender, str(item), option="--item")
        if unknown or no_items:
            messages.print(
                f"{describe_unknown(recommender, [*unknown, *no_items])}: skipped.", markup=False, soft_wrap=True
            )
        person = typed_values(parse_pairs(user_feature, option="--user-feature", form="COLUMN=VALUE"), read.user)
        asked = score_histories(recommender, [known], [wanted], user_features=[person], context=[around])
        scored = asked.drop("request")
    missing = scored["score"].null_count()
    if missing:
        messages.print(
            f"{missing:,} of {len(scored):,} pairs have no score: the model does not know the item, or neither an item "
            "of the history nor a feature of who asks.",
            soft_wrap=True,
        )
    if out is None:
        _show(scored)
    else:
        write_tables([scored], out)


def _show(scored: pl.DataFrame) -> None:
    shown = Table(header_style="bold")
    for name in scored.columns:
        shown.add_column(name, justify="right" if name == "score" else "left")
    for *ids, value in scored.iter_rows():
        shown.add_row(*(escape(str(one)) for one in ids), "-" if value is None else f"{value:.3f}")
    results.print(shown)
