"""beamtree update: continue training a saved model on new rows, and change its catalogue."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from beamtree.artefact import Artefact, read_model_manifest, save_artefact
from beamtree.catalogue.change import CatalogueChange, change_catalogue
from beamtree.catalogue.folder import claimed_for_update
from beamtree.catalogue.item_rows import read_new_items
from beamtree.cli.console import fit_progress, messages, results
from beamtree.cli.ids import describe_unknown, find_items
from beamtree.cli.log_options import LogOptions, takes_log_options
from beamtree.cli.options import ItemColumnOption, ItemsOption, ModelArgument, UsersOption, parse_pairs
from beamtree.errors import InputError, UnknownIdsError
from beamtree.model_card import write_model_card
from beamtree.progress import bullet_list
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.recommender import Recommender
from beamtree.storage import MANIFEST
from beamtree.training.exclusive import claimed_folder
from beamtree.updating.state import copy_state


@takes_log_options
def update(
    model: ModelArgument,
    *,
    log: Annotated[
        str | None, typer.Option(help="Log with new rows; rows that the model was trained on are skipped.")
    ] = None,
    items: ItemsOption = None,
    item_column: ItemColumnOption = None,
    users: UsersOption = None,
    remove: Annotated[
        str | None,
        typer.Option(
            help="Item ids never to recommend again: 50,181; a JSON list if ids contain commas. --items brings "
            "them back."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to save to; default: replace the model in place.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Save the update even if it is less accurate than the model.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint of an interrupted update, if there is one.")
    ] = False,
    reading: LogOptions,
) -> None:
    """Continue training on new rows of the log; add or remove items without training.

    With --log the model learns on, in a fraction of the time of a fit, and replaces the one in use only if it does not
    do worse on the newest interactions. Without it new items are placed by what is known of them. The folder changes as
    a whole, so that a server that watches it goes on answering, and does not change where anything is wrong.
    """
    item_columns = parse_pairs(item_column, option="--item-column", form="OURS=THEIRS")
    if log is None and items is None and remove is None:
        raise InputError(
            "There is nothing to do: give new rows with --log LOG, new items with --items TABLE, or ids with --remove "
            "ID,ID."
        )
    if log is None and (force or resume or reading.given()):
        given = [*reading.given(), *(["--force"] if force else []), *(["--resume"] if resume else [])]
        raise InputError(f"{' and '.join(given)} are about new rows: give them with --log LOG, or leave it out.")
    if log is None and users is not None:
        raise InputError("--users describes the users of new rows: give them with --log LOG, or leave it out.")
    if items is None and item_columns:
        raise InputError("--item-column names columns of the item table: give that too, with --items TABLE.")
    target = model if out is None else out
    if log is not None:
        read_model_manifest(model)
        _check_target(target)
        fits = claimed_folder(target.absolute(), otherwise="give another folder with --out")
        with fits, claimed_for_update(target):
            _learn_on(
                model,
                target,
                log,
                items=items,
                item_columns=item_columns,
                users=users,
                remove=remove,
                force=force,
                resume=resume,
                reading=reading,
            )
        results.print(f"Saved to {target.absolute()}.", markup=False)
        return
    read_model_manifest(model)
    _check_target(target)
    with claimed_for_update(target):
        recommender = Recommender.load(model)
        change = _change_items(recommender, items=items, item_columns=item_columns, remove=remove)
        copy_state(model, target, fingerprint=change.artefact.data_fingerprint)
        save(target, change.artefact)
    messages.print(bullet_list(change.lines()), markup=False)
    results.print(f"Saved to {target.absolute()}.", markup=False)


def _learn_on(
    model: Path,
    target: Path,
    log: str,
    *,
    items: str | None,
    item_columns: dict[str, str],
    users: str | None,
    remove: str | None,
    force: bool,
    resume: bool,
    reading: LogOptions,
) -> None:
    """Update with new rows and save the result to the target."""
    retriever = DeepTreeRetriever.load(model)
    if remove is not None:
        leaving, unknown = find_items(retriever.recommender, remove, option="--remove")
        if unknown:
            raise UnknownIdsError(f"{describe_unknown(retriever.recommender, unknown)}: nothing was changed.", unknown)
        retriever.remove_items(leaving)
    columns = retriever.config.log.item_columns | item_columns
    table = None
    if items is not None:
        table = read_new_items(items, like=retriever.recommender.artefact.item_table, columns=columns)
    work_dir = target.absolute().with_name(f"{target.absolute().name}.checkpoint")
    rows = reading.read(log, retriever.config.log)
    with fit_progress() as listen:
        retriever.update(rows, table, users=users, force=force, work_dir=work_dir, resume=resume, listen=listen)
    retriever.save(target)
    shutil.rmtree(work_dir, ignore_errors=True)


def save(folder: Path, artefact: Artefact) -> None:
    """Write a model that can be searched, and its card; ArtefactError, and nothing changed, where that fails."""
    Recommender(artefact)
    save_artefact(folder, artefact)
    write_model_card(folder, artefact)


def _change_items(
    recommender: Recommender, *, items: str | None, item_columns: dict[str, str], remove: str | None
) -> CatalogueChange:
    artefact = recommender.artefact
    columns = artefact.config.log.item_columns | item_columns
    added = None if items is None else read_new_items(items, like=artefact.item_table, columns=columns)
    leaving, unknown = ([], []) if remove is None else find_items(recommender, remove, option="--remove")
    if unknown:
        raise UnknownIdsError(f"{describe_unknown(recommender, unknown)}: nothing was changed.", unknown)
    return change_catalogue(artefact, add=added, remove=leaving)


def _check_target(folder: Path) -> None:
    """Refuse a folder that is not a model's, before any work begins."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; --out takes a folder for the model.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} holds other files and no beamtree model. Give another folder with --out.")
