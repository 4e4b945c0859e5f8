"""A log of many files cut into shards by user, once: one task reads a file and deals its rows out to the shards.

    FOLDER/shard-00012/part-000003.parquet    the rows of file 3 that belong to users of shard 12, in their order
    FOLDER/shard-00012.allow/...              the lists of items that these users may get, where there are any
    FOLDER/shard-00012.users/...              the rows of the user table about them, where there is one
    FOLDER/partition.json                     written last: the partition is complete

Whoever reads a shard has whole histories, and only those.
"""

import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from beamtree.config import LogSettings
from beamtree.data.columns import ITEM_ID, TIMESTAMP, USER_ID
from beamtree.data.interactions import InteractionLog, read_interactions, read_log
from beamtree.data.tables import find_files
from beamtree.data.users import read_users
from beamtree.errors import NoRowsError
from beamtree.retrieval.allow_lists import read_allow_lists
from beamtree.storage import replace_file, replace_text
from beamtree.types import Int64Array

COMPLETE = "partition.json"
ROWS_OF_A_FILE = 2**40
"""Rows of a log without timestamps are numbered within their file; those of the next file come this much later."""


@dataclass(frozen=True)
class Partition:
    """Shards of a log. shards: those that have rows. rows, rejected: of all files, rejected ones left out of rows.

    has_text_users, has_text_items: whether any file has ids that are texts; then all of them are.
    """

    shards: tuple[int, ...]
    rows: int
    rejected: int
    has_text_users: bool
    has_text_items: bool


@dataclass(frozen=True)
class FileShare:
    """What one file gave to the shards."""

    shards: tuple[int, ...]
    rows: int = 0
    rejected: int = 0
    has_text_users: bool = False
    has_text_items: bool = False


def partition_by_user(
    ray: Any,
    log: str,
    *,
    settings: LogSettings,
    folder: Path,
    num_shards: int,
    allow_lists: str | None = None,
    user_table: str | None = None,
) -> Partition:
    """Cut a log into shards in a folder that all nodes share, or find it cut there. NoRowsError where none is left."""
    if (folder / COMPLETE).is_file():
        kept = json.loads((folder / COMPLETE).read_text(encoding="utf-8"))
        return Partition(**{**kept, "shards": tuple(kept["shards"])})
    split, split_lists = ray.remote(num_cpus=1)(split_file), ray.remote(num_cpus=1)(split_allow_lists)
    files = [path.absolute() for path in find_files(log)]
    shares = [split.remote(path, number, settings, folder, num_shards) for number, path in enumerate(files)]
    listed = [] if allow_lists is None else [path.absolute() for path in find_files(allow_lists)]
    dealt = [split_lists.remote(path, number, folder, num_shards) for number, path in enumerate(listed)]
    if user_table is not None:
        dealt.append(ray.remote(num_cpus=1)(split_users).remote(user_table, settings, folder, num_shards))
    found: list[FileShare] = ray.get(shares)
    ray.get(dealt)
    partition = Partition(
        shards=tuple(sorted({shard for share in found for shard in share.shards})),
        rows=sum(share.rows for share in found),
        rejected=sum(share.rejected for share in found),
        has_text_users=any(share.has_text_users for share in found),
        has_text_items=any(share.has_text_items for share in found),
    )
    if not partition.rows:
        raise NoRowsError(f"{log}: no rows left in {len(files)} files. Loosen the filters, or check the columns.")
    replace_text(folder / COMPLETE, json.dumps(asdict(partition)))
    return partition


def split_file(path: Path, number: int, settings: LogSettings, folder: Path, num_shards: int) -> FileShare:
    """Deal the rows of one file out to the shards; every file of a shard is there as a whole or not at all."""
    try:
        log = read_log(str(path), settings, rejects_file=folder / f"rejects-{number:06d}.csv")
    except NoRowsError:
        return FileShare(())
    frame = log.frame
    if settings.row_order:
        frame = frame.with_columns(pl.col(TIMESTAMP) + number * ROWS_OF_A_FILE)
    shards = _deal(frame, num_shards, suffix="", number=number, folder=folder)
    texts = {name: frame.schema[name] == pl.String for name in (USER_ID, ITEM_ID)}
    return FileShare(shards, frame.height, log.report.rows_rejected, texts[USER_ID], texts[ITEM_ID])


def split_allow_lists(path: Path, number: int, folder: Path, num_shards: int) -> None:
    """Deal lists of items, with a row for each user, out in the same way."""
    _deal(read_allow_lists(str(path)), num_shards, suffix=".allow", number=number, folder=folder)


def split_users(table: str, settings: LogSettings, folder: Path, num_shards: int) -> None:
    """Deal a user table out in the same way; it is read as a whole, so that a column has one type in all shards."""
    _deal(read_users(table, columns=settings.columns), num_shards, suffix=".users", number=0, folder=folder)


def read_shard(folder: Path, shard: int, partition: Partition) -> InteractionLog:
    """The log of the users of a shard: what reading the whole log gives of them."""
    frame = read_interactions(shard_folder(folder, shard)).frame
    texts = [(USER_ID, partition.has_text_users), (ITEM_ID, partition.has_text_items)]
    return InteractionLog(frame.with_columns(pl.col(name).cast(pl.String) for name, is_text in texts if is_text))


def read_shard_lists(folder: Path, shard: int, partition: Partition) -> pl.DataFrame | None:
    """The lists of the users of a shard; None where there are none."""
    place = shard_folder(folder, shard, suffix=".allow")
    if not place.is_dir():
        return None
    lists = read_allow_lists(place)
    return lists.with_columns(pl.col(USER_ID).cast(pl.String)) if partition.has_text_users else lists


def read_shard_users(folder: Path, shard: int) -> pl.DataFrame | None:
    """The rows of the user table about the users of a shard; None where there are none."""
    place = shard_folder(folder, shard, suffix=".users")
    return pl.read_parquet(place) if place.is_dir() else None


def shard_folder(folder: Path, shard: int, *, suffix: str = "") -> Path:
    """Where the files of a shard lie."""
    return folder / f"shard-{shard:05d}{suffix}"


def shard_of_users(users: pl.Series, *, num_shards: int) -> Int64Array:
    """The shard of each user (n,): a checksum of the id as text, the same on every machine and in every version."""
    return np.array([zlib.crc32(str(user).encode()) % num_shards for user in users], dtype=np.int64)


def _deal(frame: pl.DataFrame, num_shards: int, *, suffix: str, number: int, folder: Path) -> tuple[int, ...]:
    users = frame.select(pl.col(USER_ID).unique())
    keyed = users.with_columns(pl.Series("shard", shard_of_users(users[USER_ID], num_shards=num_shards)))
    parts = frame.join(keyed, on=USER_ID, how="left", maintain_order="left").partition_by("shard", as_dict=True)
    for (shard,), part in parts.items():
        place = shard_folder(folder, int(shard), suffix=suffix)
        place.mkdir(parents=True, exist_ok=True)
        replace_file(place / f"part-{number:06d}.parquet", part.drop("shard").write_parquet)
    return tuple(sorted(int(shard) for (shard,) in parts))
