"""Options that several commands share, spelled once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from beamtree.artefact import Artefact
from beamtree.cli.option_groups import OptionGroup
from beamtree.cluster.connection import Cluster, import_ray
from beamtree.data.columns import MAPPABLE_ITEM_COLUMNS
from beamtree.data.request_features import typed_values
from beamtree.data.users import read_users
from beamtree.errors import InputError, SettingsError
from beamtree.evaluation.protocol import CUTOFFS, checked_cutoffs

ModelArgument = Annotated[Path, typer.Argument(help="Folder of a saved model.", metavar="MODEL")]
LogArgument = Annotated[
    str, typer.Argument(help="Interaction log: a file, folder or glob of CSV, TSV, Parquet or NDJSON.", metavar="LOG")
]
LogOption = Annotated[str, typer.Option("--log", help="Interaction log: a file, a folder or a glob.")]
ItemsOption = Annotated[str | None, typer.Option("--items", help="Item table with item_id, category, title, ...")]
UsersOption = Annotated[
    str | None, typer.Option("--users", help="User table with user_id, named as in the log, and any other columns.")
]
ItemColumnOption = Annotated[
    list[str] | None,
    typer.Option("--item-column", help=f"Name in the item table: OURS=THEIRS, for {', '.join(MAPPABLE_ITEM_COLUMNS)}."),
]
BeamOption = Annotated[int | None, typer.Option("--beam", min=1, help="Beam width; default: the model's.")]
CutoffsOption = Annotated[
    str | None, typer.Option("--cutoffs", help="List lengths for the metrics, such as 5,10,20; default 20,40.")
]
SeedsOption = Annotated[int, typer.Option(min=1, help="Fits of each system, with the same held-out users.")]
JobsOption = Annotated[int, typer.Option(min=1, help="Parallel fits. Times are only comparable with 1.")]


@dataclass(frozen=True, kw_only=True)
class RequestOptions(OptionGroup):
    """Features of the user and of the context."""

    user_table: Annotated[
        str | None, typer.Option(help="User table for the users of the log, with the columns of the fit.")
    ] = None
    user_feature: Annotated[
        list[str] | None,
        typer.Option(help="Feature of the user: city=Oslo, a column of the user table. Repeat as needed."),
    ] = None
    context: Annotated[
        list[str] | None, typer.Option(help="In which context: device=phone, a context column of the log.")
    ] = None

    def check_person(self, history: str | None) -> None:
        """InputError for user features without a single user."""
        if history is None and self.user_feature:
            raise InputError(
                "--user-feature is about one person: give --history, or --user-table for the users of a log."
            )

    def users(self, artefact: Artefact) -> pl.DataFrame | None:
        """The table of users, where there is one."""
        columns = artefact.config.log.interaction_columns
        return None if self.user_table is None else read_users(self.user_table, columns=columns)

    def person(self, artefact: Artefact) -> dict[str, Any]:
        """The values of the features of the person, by column."""
        given = parse_pairs(self.user_feature, option="--user-feature", form="COLUMN=VALUE")
        return typed_values(given, artefact.request_features.user)

    def around(self, artefact: Artefact) -> dict[str, Any]:
        """The values of the context, by column."""
        given = parse_pairs(self.context, option="--context", form="COLUMN=VALUE")
        return typed_values(given, artefact.request_features.context)


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(OptionGroup):
    """The cluster to compute on, if any."""

    cluster: Annotated[
        str | None,
        typer.Option(
            help="Run on a Ray cluster: auto, its address, or local. Files have to be on storage shared by all nodes."
        ),
    ] = None
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; default: as many as the cluster has CPUs for.")
    ] = None
    worker_threads: Annotated[int | None, typer.Option(min=1, help="CPUs per worker; default 1.")] = None

    def chosen(self) -> Cluster | None:
        """The requested cluster; InputError without Ray, or without --cluster."""
        if self.cluster is None:
            if self.given():
                raise InputError(
                    f"{' and '.join(self.given())} are about a cluster: give one with --cluster, or leave them out."
                )
            return None
        import_ray()
        return Cluster(self.cluster, workers=self.workers, threads=self.worker_threads or 1)


def parse_cutoffs(text: str | None) -> tuple[int, ...]:
    """The list of --cutoffs; InputError unless it is one of positive integers."""
    if text is None:
        return CUTOFFS
    try:
        return checked_cutoffs(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--cutoffs takes positive integers, such as 5,10,20; got {text!r}.") from None


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
    """The default folder for the estimators of a model folder."""
    folder = model.absolute()
    return folder.parent / f"{folder.name}.estimator"
