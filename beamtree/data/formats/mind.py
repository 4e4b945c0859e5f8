"""MIND, the news data set: behaviors.tsv with histories and impressions, news.tsv with categories and titles."""

from pathlib import Path
from typing import Final

import polars as pl

from beamtree.data.columns import CATEGORY, ITEM_ID, TIMESTAMP, TITLE, USER_ID
from beamtree.data.formats.original import Original, find_original, read_headerless, refuse_nulls, require_original
from beamtree.errors import DataError

_BEHAVIOURS: Final = ("impression_id", USER_ID, "time", "history", "impressions")
_NEWS: Final = (ITEM_ID, CATEGORY, "subcategory", TITLE, "abstract", "url", "title_entities", "abstract_entities")
_TIME_FORMAT: Final = "%m/%d/%Y %I:%M:%S %p"


def read_mind(source: Path) -> Original:
    """All behaviors.tsv and news.tsv at or below a folder, as one log of clicks.

    A user's clicks are the history of the earliest row (given without times: placed one second apart before that row)
    and then the clicked items of all impressions (marked -1 at the end), at the time of their row, in listed order.
    Several folders (train and dev) are joined; an impression without marks (the test set) adds no click.
    DataError with file and line for a time or an impression that cannot be understood.
    """
    rows = pl.concat([_read_behaviours(path) for path in require_original(source, "behaviors.tsv")])
    rows = rows.sort(USER_ID, TIMESTAMP, maintain_order=True)
    return Original(pl.concat([_histories(rows), _clicks(rows)]), _read_news(source))


def _read_behaviours(path: Path) -> pl.DataFrame:
    """user_id, timestamp, history and impressions (both lists of texts)."""
    frame = read_headerless(path, names=_BEHAVIOURS, separator="\t")
    moments = frame["time"].str.to_datetime(_TIME_FORMAT, strict=False)
    refuse_nulls(moments, raw=frame["time"], path=path, expected="a time such as 11/15/2019 8:55:22 AM")
    refuse_nulls(frame[USER_ID], raw=frame[USER_ID], path=path, expected="a user id")
    marks = frame["impressions"].fill_null("")
    wrong = ~marks.str.contains(r"^(\S+-[01](\s+|$))*$") & ~marks.str.contains(r"^[^\s-]+(\s+[^\s-]+)*\s*$")
    if wrong.any():
        row = int(wrong.arg_true()[0])
        raise DataError(f"{path}, line {row + 1}: expected impressions such as 'N12-1 N7-0', got {marks[row][:80]!r}.")
    return frame.select(
        USER_ID,
        moments.dt.epoch("s").alias(TIMESTAMP),
        pl.col("history").fill_null("").str.extract_all(r"\S+"),
        pl.col("impressions").fill_null("").str.extract_all(r"\S+"),
    )


def _histories(rows: pl.DataFrame) -> pl.DataFrame:
    earliest = rows.group_by(USER_ID, maintain_order=True).first().filter(pl.col("history").list.len() > 0)
    placed = earliest.with_columns(
        pl.int_ranges(pl.col(TIMESTAMP) - pl.col("history").list.len(), pl.col(TIMESTAMP)).alias(TIMESTAMP)
    )
    exploded = placed.select(USER_ID, pl.col("history").alias(ITEM_ID), TIMESTAMP).explode(ITEM_ID, TIMESTAMP)
    return exploded.select(USER_ID, ITEM_ID, TIMESTAMP)


def _clicks(rows: pl.DataFrame) -> pl.DataFrame:
    shown = rows.select(USER_ID, pl.col("impressions").alias(ITEM_ID), TIMESTAMP).explode(ITEM_ID)
    clicked = shown.filter(pl.col(ITEM_ID).str.ends_with("-1"))
    return clicked.with_columns(pl.col(ITEM_ID).str.strip_suffix("-1"))


def _read_news(source: Path) -> pl.DataFrame | None:
    folder = source.parent if source.is_file() else source
    files = find_original(folder, "news.tsv")
    if not files:
        return None
    news = pl.concat([read_headerless(path, names=_NEWS, separator="\t") for path in files])
    return news.select(ITEM_ID, CATEGORY, TITLE, "subcategory").unique(ITEM_ID, keep="first", maintain_order=True)
