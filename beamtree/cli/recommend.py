"""beamtree recommend: for one history, or for all users of a log into a file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.progress import TextColumn

from beamtree.artefact import Artefact
from beamtree.cli.console import messages, results, say, text_table
from beamtree.cli.ids import describe_unknown, find_items, split_ids
from beamtree.cli.log_options import LogOptions
from beamtree.cli.option_groups import OptionGroup, takes_option_groups
from beamtree.cli.options import BeamOption, ClusterOptions, ModelArgument, RequestOptions, parse_pairs
from beamtree.cli.output import OutOption, check_out, write_tables
from beamtree.cluster.connection import Cluster
from beamtree.cluster.recommending import Job, ShardDone, recommend_everybody
from beamtree.data.columns import CATEGORY, ITEM_ID, TITLE, USER_ID
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import InputError
from beamtree.progress import timed_bar
from beamtree.retrieval.allow_lists import by_user, read_allow_lists
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import DEFAULT_K, Fallback, RecommendOptions
from beamtree.retrieval.tables import REQUEST, UserRecommendations, recommend_histories, recommend_users

MAX_SHOWN_REASONS = 2


@dataclass(frozen=True, kw_only=True)
class ListOptions(OptionGroup):
    """What a list of recommendations may hold."""

    k: Annotated[int, typer.Option("-k", min=1, help="Number of items.")] = DEFAULT_K
    beam: BeamOption = None
    exclude_seen: Annotated[bool | None, typer.Option(help="Exclude the items of the history.")] = None
    allow: Annotated[
        list[str] | None, typer.Option(help="Only items whose column has one of these values: category=Drama,Comedy.")
    ] = None
    exclude: Annotated[str | None, typer.Option(help="Item ids to exclude: 1,2,3.")] = None
    fallback: Annotated[
        Fallback, typer.Option(help="For histories without known items: popular items, or an error.")
    ] = "popularity"
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show the contribution of each part of the score and of items of the history."),
    ] = False

    def chosen(self, recommender: Recommender) -> RecommendOptions:
        """The same for a model, after saying which ids to exclude it does not know."""
        excluded, unknown = find_items(recommender, self.exclude or "", option="--exclude")
        if unknown:
            say(f"{describe_unknown(recommender, unknown)}: nothing to exclude there.")
        return RecommendOptions(
            k=self.k,
            beam=self.beam,
            exclude_seen=self.exclude_seen,
            allow=_condition(self.allow),
            exclude=None if self.exclude is None else excluded,
            fallback=self.fallback,
            explain=self.explain,
        )


@takes_option_groups
def recommend(
    model: ModelArgument,
    *,
    history: Annotated[
        str | None,
        typer.Option(help="Item ids of one history, oldest first: 50,181,172; a JSON list if ids contain commas."),
    ] = None,
    log: Annotated[str | None, typer.Option(help="Recommend for the users of this log.")] = None,
    users: Annotated[str | None, typer.Option(help="Only these users of the log: 7,8,9.")] = None,
    asking: RequestOptions,
    out: OutOption = None,
    lists: ListOptions,
    allow_lists: Annotated[
        str | None,
        typer.Option(help="Table with user_id and allow, the list of item ids that the user may get."),
    ] = None,
    machines: ClusterOptions,
    reading: LogOptions,
) -> None:
    """Recommend items for one history, or for the users of a log.

    With --cluster, for all users of a log: --out is then a folder with one Parquet file per shard of the users. The
    same command resumes an interrupted run.
    """
    cluster = machines.chosen()
    if cluster is None:
        check_out(out)
    elif log is None or out is None or users is not None or asking.user_feature:
        raise InputError(
            "--cluster recommends for all users of a log: give --log and --out, and neither --users nor --user-feature."
        )
    if (history is None) == (log is None):
        raise InputError("Give either --history ID,ID,ID for one person, or --log LOG for the users of a log.")
    about_users = {"--users": users, "--user-table": asking.user_table, "--allow-lists": allow_lists}
    about_logs = [*(name for name, value in about_users.items() if value is not None), *reading.given()]
    if log is None and about_logs:
        raise InputError(f"{' and '.join(about_logs)} are about a log: give one with --log LOG, or leave them out.")
    asking.check_person(history)
    recommender = Recommender.load(model)
    options, artefact = lists.chosen(recommender), recommender.artefact
    if history is not None:
        _recommend_history(recommender, history, options, asking, out=out)
    elif cluster is not None and out is not None:
        settings, context = reading.over(artefact.config.log), asking.around(artefact)
        job = Job(model.absolute(), str(log), settings, options, allow_lists, asking.user_table, context)
        del recommender  # the actors have their own
        recommend_on_cluster(cluster, job, out)
    else:
        interactions = reading.read(str(log), artefact.config.log)
        known_users = Vocabulary(interactions.frame[USER_ID].unique())
        wanted = None if users is None else [known_users.parse(text) for text in split_ids(users, option="--users")]
        tables = recommend_users(
            recommender,
            interactions,
            users=wanted,
            options=options,
            allow_lists=None if allow_lists is None else by_user(read_allow_lists(allow_lists)),
            user_table=asking.users(artefact),
            context=asking.around(artefact),
        )
        _give_out(tables, artefact, out=out)


def _recommend_history(
    recommender: Recommender, history: str, options: RecommendOptions, asking: RequestOptions, *, out: Path | None
) -> None:
    """For one history, on the screen or into a file."""
    artefact = recommender.artefact
    known, unknown = find_items(recommender, history, option="--history")
    table = recommend_histories(
        recommender,
        [known],
        options=options,
        user_features=[asking.person(artefact)],
        context=[asking.around(artefact)],
    )
    is_cold = not known and table["score"].null_count() == table.height
    _say_what_was_used(recommender, table, unknown=unknown, is_cold=is_cold)
    if out is None:
        _show(table, item_table=artefact.item_table)
    else:
        write_tables([table], out)


def _give_out(tables: UserRecommendations, artefact: Artefact, *, out: Path | None) -> None:
    """For the users of a log, on the screen or into a file; then say how many of them got popular items."""
    cold: list[object] = []
    counted = _counting_cold(tables, cold)
    if out is None:
        for table in counted:
            _show(table, item_table=artefact.item_table)
    else:
        write_tables(_with_progress(counted, total=len(tables.users)), out)
    if cold:
        say(
            f"{len(cold):,} of {len(tables.users):,} users have no item in the log that the model knows, the first is "
            f"{cold[0]}: they get the most popular items, without scores."
        )


def _say_what_was_used(recommender: Recommender, table: pl.DataFrame, *, unknown: list[str], is_cold: bool) -> None:
    """Report unknown ids of a history, and popular items in place of recommendations."""
    if table.is_empty():
        outcome = "There is no item that may be recommended here."
    elif is_cold:
        outcome = "No item of the history is known, so these are the most popular ones, without scores."
    else:
        outcome = ""
    if unknown:
        skipped = "" if is_cold else ": skipped"
        outcome = f"{describe_unknown(recommender, unknown)}{skipped}. {outcome}"
    elif is_cold:
        outcome = outcome.replace("No item of the history is known", "The history is empty")
    if outcome:
        say(outcome.strip())


def _counting_cold(tables: UserRecommendations, cold: list[object]) -> Iterator[pl.DataFrame]:
    """The tables; users who got popular items are added to `cold` meanwhile."""
    for table in tables:
        cold += table.filter((pl.col("rank") == 1) & pl.col("score").is_null())[USER_ID].to_list()
        yield table


def _with_progress(tables: Iterator[pl.DataFrame], *, total: int) -> Iterator[pl.DataFrame]:
    """The tables, with a progress bar over users and the remaining time."""
    bar = timed_bar("recommending", TextColumn("{task.completed:,.0f} of {task.total:,.0f} users"), console=messages)
    say(f"Recommending for {total:,} users.")
    with bar:
        task = bar.add_task("", total=total)
        for table in tables:
            bar.advance(task, table[USER_ID].n_unique())
            yield table


def _show(batch: pl.DataFrame, *, item_table: pl.DataFrame) -> None:
    key, *_ = batch.columns
    columns = [name for name in (TITLE, CATEGORY) if name in item_table and item_table[name].is_not_null().any()]
    named = batch.join(item_table.select(ITEM_ID, *columns), on=ITEM_ID, how="left", maintain_order="left")
    names = _names(item_table)
    numbers = ["rank", *(name for name, dtype in batch.schema.items() if dtype.is_float())]
    added = [name for name in batch.columns if name not in (key, ITEM_ID, "score", "rank", "reason_parts")]
    shown = ([key] if key != REQUEST else []) + ["rank", ITEM_ID, *columns, "score", *added]
    rows = []
    for row in named.iter_rows(named=True):
        if row.get("because_of") is not None:
            reasons = list(zip(row["because_of"], row["reason_parts"], strict=True))[:MAX_SHOWN_REASONS]
            row["because_of"] = "; ".join(f"{names.get(item, str(item))} ({part})" for item, part in reasons)
        rows.append([_cell(row[name]) for name in shown])
    headings = [name.replace("because_of", "because of") for name in shown]
    results.print(text_table(headings, rows, right=numbers))


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


def _condition(allow: list[str] | None) -> pl.Expr | None:
    """All of the given columns must have one of their values."""
    conditions = [
        pl.col(column).cast(pl.String).is_in([value.strip() for value in values.split(",")])
        for column, values in parse_pairs(allow, option="--allow", form="COLUMN=VALUE[,VALUE...]").items()
    ]
    return pl.all_horizontal(conditions) if conditions else None


def recommend_on_cluster(cluster: Cluster, job: Job, out: Path) -> None:
    """Recommend for all users, with a progress bar over shards and the remaining time."""
    bar = timed_bar(
        "recommending",
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} shards, {task.fields[users]:,} users"),
        console=messages,
    )
    say("Partitioning the log by user.")
    users = 0
    with bar:
        task = bar.add_task("", total=None, visible=False, users=0)

        def on_shard(done: ShardDone | None, total: int) -> None:
            nonlocal users
            if done is None:
                say(f"Recommending for the users of {total:,} shards.")
                bar.reset(task, total=total, visible=True, users=0)
            else:
                users += done.users
                bar.update(task, advance=1, users=users)

        made = recommend_everybody(cluster, job, out, on_shard=on_shard)
    found = f"; {made.found:,} of them were there before" if made.found else ""
    say(f"Wrote recommendations for {made.users:,} users; {made.shards:,} files in {out}{found}.")
    if made.cold:
        say(
            f"{made.cold:,} of these users have no item in the log that the model knows: they get the most popular "
            "items, without scores."
        )
