"""Amazon reviews (Books): rating files as CSV with or without header, reviews as JSON lines, metadata as JSON lines."""

from pathlib import Path
from typing import Final

import polars as pl

from beamtree.data.columns import CATEGORY, ITEM_ID, RATING, TIMESTAMP, TITLE, USER_ID
from beamtree.data.formats.original import Original, find_original, read_headerless
from beamtree.data.tables import read_tables
from beamtree.errors import DataError

_NAMES: Final = {
    USER_ID: ("user_id", "reviewerID"),
    ITEM_ID: ("parent_asin", "asin", "item_id"),
    RATING: ("rating", "overall"),
    TIMESTAMP: ("timestamp", "unixReviewTime"),
}
_REVIEWS: Final = ("ratings_Books.csv*", "Books.csv*", "reviews_Books*", "Books*.json*")
_METADATA: Final = "meta_*"
_ITEM_ID_LENGTH: Final = 10


def read_amazon(source: Path) -> Original:
    """Reviews of Amazon Books: user, item, rating and time; and, where a meta_* file lies beside, titles.

    Understands rating files without header (user,item,rating,time, or item,user first: item ids have 10 characters,
    user ids mostly more), with header, and reviews with one JSON object per line under the names of any release.
    The category is the last and finest name on the path of categories.
    """
    reviews = [path for path in find_original(source, *_REVIEWS) if not path.match(_METADATA)]
    if not reviews:
        raise DataError(f"{source}: expected a file {' or '.join(_REVIEWS)} there, found none.")
    folder = source.parent if source.is_file() else source
    metadata = find_original(folder, _METADATA)
    return Original(_read_reviews(reviews[0]), _read_metadata(metadata[0]) if metadata else None)


def _read_reviews(path: Path) -> pl.DataFrame:
    if ".csv" in path.suffixes and not _has_header(path):
        return _name_by_length(read_headerless(path, names=("first", "second", RATING, TIMESTAMP), separator=","))
    known = {name for names in _NAMES.values() for name in names}
    table = next(read_tables(path, wanted=known, headerless=()))
    chosen = {ours: next((name for name in names if name in table.columns), None) for ours, names in _NAMES.items()}
    missing = [ours for ours, name in chosen.items() if name is None]
    if missing:
        expected = " or ".join(_NAMES[missing[0]])
        raise DataError(f"{path}: no column for {missing[0]}; expected {expected}, got {', '.join(table.columns)}.")
    return table.frame.select(pl.col(name).alias(ours) for ours, name in chosen.items() if name is not None)


def _has_header(path: Path) -> bool:
    first = pl.read_csv(path, has_header=False, infer_schema=False, n_rows=1).row(0)
    return not any((value or "").replace(".", "", 1).isdigit() for value in first[2:])


def _name_by_length(frame: pl.DataFrame) -> pl.DataFrame:
    """One release writes user,item and another item,user: the item is where more ids have exactly 10 characters."""
    short = frame.select((pl.col("first", "second").str.len_chars() == _ITEM_ID_LENGTH).sum()).row(0)
    user, item = ("second", "first") if short[0] > short[1] else ("first", "second")
    return frame.rename({user: USER_ID, item: ITEM_ID}).select(USER_ID, ITEM_ID, RATING, TIMESTAMP)


def _read_metadata(path: Path) -> pl.DataFrame:
    table = next(read_tables(path, wanted={"asin", "parent_asin", "title", "category", "categories"}, headerless=()))
    frame = table.frame
    id_name = "parent_asin" if "parent_asin" in table.columns else "asin"
    if id_name not in table.columns:
        raise DataError(f"{path}: no column for item_id; expected asin or parent_asin, got {', '.join(table.columns)}.")
    title = pl.col("title").cast(pl.String) if "title" in frame.columns else pl.lit(None, dtype=pl.String)
    items = frame.select(pl.col(id_name).alias(ITEM_ID), _finest_category(frame).alias(CATEGORY), title.alias(TITLE))
    return items.unique(ITEM_ID, keep="first", maintain_order=True)


def _finest_category(frame: pl.DataFrame) -> pl.Series:
    name = next((name for name in ("category", "categories") if name in frame.columns), None)
    if name is None:
        return pl.Series([None] * frame.height, dtype=pl.String)
    path = frame[name]
    while isinstance(path.dtype, pl.List):
        path = path.list.last()
    return path.cast(pl.String)
