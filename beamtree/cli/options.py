"""Options that several commands share, spelled once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from beamtree.data.columns import MAPPABLE_ITEM_COLUMNS
from beamtree.errors import SettingsError

ModelArgument = Annotated[Path, typer.Argument(help="Folder of a saved model.", metavar="MODEL")]
LogArgument = Annotated[
    str, typer.Argument(help="Interaction log: a file, folder or glob of CSV, TSV, Parquet or NDJSON.", metavar="LOG")
]
LogOption = Annotated[str, typer.Option("--log", help="Interaction log: a file, a folder or a glob.")]
ItemsOption = Annotated[str | None, typer.Option("--items", help="Item table with item_id, category, title, ...")]
ItemColumnOption = Annotated[
    list[str] | None,
    typer.Option("--item-column", help=f"Name in the item table: OURS=THEIRS, for {', '.join(MAPPABLE_ITEM_COLUMNS)}."),
]
BeamOption = Annotated[int | None, typer.Option("--beam", min=1, help="Beam width; default: the model's.")]


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
    """Where the estimators of a model folder are kept unless told otherwise."""
    folder = model.absolute()
    return folder.parent / f"{folder.name}.estimator"
