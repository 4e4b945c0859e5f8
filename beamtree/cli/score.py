"""beamtree score: scores of given items, for pairs of a user and an item or for one history."""

from typing import Annotated

import typer

from beamtree.cli.console import results, say, text_table
from beamtree.cli.ids import describe_unknown, find_items
from beamtree.cli.log_options import LogOptions
from beamtree.cli.option_groups import takes_option_groups
from beamtree.cli.options import ModelArgument, RequestOptions
from beamtree.cli.output import OutOption, check_out, write_tables
from beamtree.errors import InputError
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.scoring import read_pairs, score_histories, score_pairs


@takes_option_groups
def score(
    model: ModelArgument,
    *,
    pairs: Annotated[
        str | None, typer.Option(help="Table of pairs with user_id and item_id (or the names in the log).")
    ] = None,
    log: Annotated[str | None, typer.Option(help="The log with the histories of these users.")] = None,
    history: Annotated[str | None, typer.Option(help="Item ids of one history, oldest first: 50,181,172.")] = None,
    item: Annotated[str | None, typer.Option(help="Items to score for that history: 7,8,9.")] = None,
    asking: RequestOptions,
    out: OutOption = None,
    reading: LogOptions,
) -> None:
    """Score given items: pairs of a user of a log and an item, or items for one history.

    A pair has no score if the model does not know the item, or neither an item of the history nor a feature of the
    user.
    """
    check_out(out)
    for_pairs, for_history = (pairs is not None, log is not None), (history is not None, item is not None)
    if not (all(for_pairs) and not any(for_history)) and not (all(for_history) and not any(for_pairs)):
        raise InputError("Give either --pairs TABLE and --log LOG, or --history ID,ID,ID and --item ID,ID.")
    if log is None and reading.given():
        raise InputError(f"{' and '.join(reading.given())} are about a log: leave them out.")
    if log is None and asking.user_table is not None:
        raise InputError("--user-table is about the users of a log: give --pairs and --log, or --user-feature.")
    asking.check_person(history)
    recommender = Recommender.load(model)
    artefact, context = recommender.artefact, asking.around(recommender.artefact)
    if log is not None:
        table = read_pairs(pairs, columns=reading.over(artefact.config.log).columns)
        interactions, users = reading.read(log, artefact.config.log), asking.users(artefact)
        scored = score_pairs(recommender, interactions, table, user_table=users, context=context)
    else:
        known, unknown = find_items(recommender, str(history), option="--history")
        wanted, no_items = find_items(recommender, str(item), option="--item")
        if unknown or no_items:
            say(f"{describe_unknown(recommender, [*unknown, *no_items])}: skipped.")
        person = asking.person(artefact)
        asked = score_histories(recommender, [known], [wanted], user_features=[person], context=[context])
        scored = asked.drop("request")
    missing = scored["score"].null_count()
    if missing:
        say(
            f"{missing:,} of {len(scored):,} pairs have no score: the model does not know the item, or neither an item "
            "of the history nor a feature of the user."
        )
    if out is not None:
        write_tables([scored], out)
        return
    rows = [(*ids, "-" if value is None else f"{value:.3f}") for *ids, value in scored.iter_rows()]
    results.print(text_table(scored.columns, rows, right=("score",)))
