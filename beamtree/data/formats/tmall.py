"""Tmall clicks: user,item,category,behaviour,timestamp, with or without a header line."""

from pathlib import Path
from typing import Final

import polars as pl

from beamtree.data.columns import CATEGORY, ITEM_ID, TIMESTAMP, USER_ID
from beamtree.data.formats.original import Original, read_headerless, require_original
from beamtree.errors import DataError

BEHAVIOUR: Final = "behaviour"
CLICKS: Final = ("pv", "click", "0")
_COLUMNS: Final = (USER_ID, ITEM_ID, CATEGORY, BEHAVIOUR, TIMESTAMP)


def read_tmall(source: Path) -> Original:
    """The clicks of a Tmall log (behaviour pv, click or 0); an item's category is that of its first row.

    DataError where no row is a click, with the behaviours that there are.
    """
    path = require_original(source, "*.csv")[0]
    frame = read_headerless(path, names=_COLUMNS, separator=",")
    if not (frame[TIMESTAMP].head(1).str.contains(r"\d")).all():
        frame = frame.slice(1)
    clicks = frame.filter(pl.col(BEHAVIOUR).str.to_lowercase().is_in(CLICKS))
    if clicks.height == 0:
        found = ", ".join(map(repr, frame[BEHAVIOUR].unique().sort().head(10)))
        raise DataError(f"{path}: no row is a click; expected {' or '.join(CLICKS)} in column 4, got {found}.")
    items = clicks.select(ITEM_ID, CATEGORY).unique(ITEM_ID, keep="first", maintain_order=True)
    return Original(clicks.select(USER_ID, ITEM_ID, TIMESTAMP, BEHAVIOUR), items)
