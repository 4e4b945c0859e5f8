"""beamtree update: continue training a saved model on new rows, and change its catalogue."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from beamtree.artefact import Artefact, read_model_manifest, save_artefact
from beamtree.catalogue.change import change_catalogue
from beamtree.catalogue.folder import claimed_for_update
from beamtree.catalogue.item_rows import read_new_items
from beamtree.cli.console import fit_progress, messages, results
from beamtree.cli.ids import describe_unknown, find_items
from beamtree.cli.log_options import LogOptions
from beamtree.cli.option_groups import OptionGroup, takes_option_groups
from beamtree.cli.options import ItemColumnOption, ItemsOption, ModelArgument, UsersOption, parse_pairs
from beamtree.cli.output import check_model_folder
from beamtree.data.vocabulary import Id
from beamtree.errors import InputError, UnknownIdsError
from beamtree.model_card import write_model_card
from beamtree.progress import bullet_list
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.recommender import Recommender
from beamtree.training.exclusive import claimed_folder
from beamtree.updating.state import copy_state


@dataclass(frozen=True, kw_only=True)
class UpdateOptions(OptionGroup):
    """What to change."""

    log: Annotated[
        str | None, typer.Option(help="Log with new rows; rows that the model was trained on are skipped.")
    ] = None
    items: ItemsOption = None
    item_column: ItemColumnOption = None
    users: UsersOption = None
    remove: Annotated[
        str | None,
        typer.Option(
            help="Item ids never to recommend again: 50,181; a JSON list if ids contain commas. --items brings "
            "them back."
        ),
    ] = None
    force: Annotated[
        bool, typer.Option("--force", help="Save the update even if it is less accurate than the model.")
    ] = False
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint of an interrupted update, if there is one.")
    ] = False

    def new_items(self, artefact: Artefact) -> pl.DataFrame | None:
        """The table of new items, in the columns of the model's own, where there is one."""
        given = parse_pairs(self.item_column, option="--item-column", form="OURS=THEIRS")
        if self.items is None:
            return None
        return read_new_items(self.items, like=artefact.item_table, columns=artefact.config.log.item_columns | given)

    def removed_items(self, recommender: Recommender) -> list[Id]:
        """The ids to remove; UnknownIdsError for those that the model does not know."""
        leaving, unknown = find_items(recommender, self.remove or "", option="--remove")
        if unknown:
            raise UnknownIdsError(f"{describe_unknown(recommender, unknown)}: nothing was changed.", unknown)
        return leaving

    def check(self, reading: LogOptions) -> None:
        """InputError where there is nothing to do, or an option is about something that is not given."""
        if self.log is None and self.items is None and self.remove is None:
            raise InputError(
                "There is nothing to do: give new rows with --log LOG, new items with --items TABLE, or ids with "
                "--remove ID,ID."
            )
        about_rows = [*reading.given(), *(name for name in self.given() if name in ("--force", "--resume"))]
        if self.log is None and about_rows:
            raise InputError(
                f"{' and '.join(about_rows)} are about new rows: give them with --log LOG, or leave it out."
            )
        if self.log is None and self.users is not None:
            raise InputError("--users describes the users of new rows: give them with --log LOG, or leave it out.")
        if self.items is None and self.item_column:
            raise InputError("--item-column names columns of the item table: give that too, with --items TABLE.")


@takes_option_groups
def update(
    model: ModelArgument,
    *,
    wanted: UpdateOptions,
    out: Annotated[Path | None, typer.Option(help="Folder to save to; default: replace the model in place.")] = None,
    reading: LogOptions,
) -> None:
    """Continue training on new rows of the log; add or remove items without training.

    With --log, training continues on the new rows, in a fraction of the time of a fit, and the result replaces the
    model only if it is no less accurate on the newest interactions. Without --log, new items are placed by their
    features. The folder is replaced atomically, so that a server can watch it, and is unchanged after an error.
    """
    wanted.check(reading)
    target = model if out is None else out
    read_model_manifest(model)
    check_model_folder(target)
    if wanted.log is not None:
        fits = claimed_folder(target.absolute(), otherwise="give another folder with --out")
        with fits, claimed_for_update(target):
            _learn_on(model, target, wanted.log, wanted=wanted, reading=reading)
    else:
        with claimed_for_update(target):
            recommender = Recommender.load(model)
            added, leaving = wanted.new_items(recommender.artefact), wanted.removed_items(recommender)
            change = change_catalogue(recommender.artefact, add=added, remove=leaving)
            copy_state(model, target, fingerprint=change.artefact.data_fingerprint)
            save(target, change.artefact)
        messages.print(bullet_list(change.lines()), markup=False)
    results.print(f"Saved to {target.absolute()}.", markup=False)


def _learn_on(model: Path, target: Path, log: str, *, wanted: UpdateOptions, reading: LogOptions) -> None:
    """Update with new rows and save the result to the target."""
    retriever = DeepTreeRetriever.load(model)
    if wanted.remove is not None:
        retriever.remove_items(wanted.removed_items(retriever.recommender))
    items = wanted.new_items(retriever.recommender.artefact)
    work_dir = target.absolute().with_name(f"{target.absolute().name}.checkpoint")
    rows = reading.read(log, retriever.config.log)
    with fit_progress() as listen:
        retriever.update(
            rows,
            items,
            users=wanted.users,
            force=wanted.force,
            work_dir=work_dir,
            resume=wanted.resume,
            listen=listen,
        )
    retriever.save(target)
    shutil.rmtree(work_dir, ignore_errors=True)


def save(folder: Path, artefact: Artefact) -> None:
    """Write a model that can be searched, and its card; ArtefactError, and nothing changed, where that fails."""
    Recommender(artefact)
    save_artefact(folder, artefact)
    write_model_card(folder, artefact)
