"""beamtree update: a saved model goes on with another catalogue."""

from pathlib import Path
from typing import Annotated

import typer

from beamtree.artefact import Artefact, read_model_manifest, save_artefact
from beamtree.catalogue.change import CatalogueChange, change_catalogue
from beamtree.catalogue.folder import claimed_for_update
from beamtree.catalogue.item_rows import read_new_items
from beamtree.cli.console import messages, results
from beamtree.cli.ids import describe_unknown, find_items
from beamtree.cli.options import ItemColumnOption, ItemsOption, ModelArgument, parse_pairs
from beamtree.errors import InputError, UnknownIdsError
from beamtree.model_card import write_model_card
from beamtree.progress import bullet_list
from beamtree.retrieval.recommender import Recommender
from beamtree.storage import MANIFEST


def update(
    model: ModelArgument,
    *,
    items: ItemsOption = None,
    item_column: ItemColumnOption = None,
    remove: Annotated[
        str | None,
        typer.Option(
            help="Item ids that are never recommended again: 50,181; a JSON list where ids hold commas. --items brings "
            "them back."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to save to; by default the model is replaced where it is.")
    ] = None,
) -> None:
    """Add the items of a table to a model, or remove items from it, without training.

    New items are placed by what is known of them; docs/how-to/catalogue.md says how. The folder changes as a whole, so
    that a server that watches it goes on answering, and does not change where anything is wrong.
    """
    item_columns = parse_pairs(item_column, option="--item-column", form="OURS=THEIRS")
    if items is None and remove is None:
        raise InputError("There is nothing to do: give new items with --items TABLE, or ids with --remove ID,ID.")
    if items is None and item_columns:
        raise InputError("--item-column names columns of the item table: give that too, with --items TABLE.")
    target = model if out is None else out
    read_model_manifest(model)
    _check_target(target)
    with claimed_for_update(target):
        recommender = Recommender.load(model)
        change = _change_items(recommender, items=items, item_columns=item_columns, remove=remove)
        save(target, change.artefact)
    messages.print(bullet_list(change.lines()), markup=False)
    results.print(f"Saved to {target.absolute()}.", markup=False)


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
