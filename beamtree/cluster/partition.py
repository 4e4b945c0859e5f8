"""A log of many files cut into shards by user, once: whoever reads a shard has whole histories, and only those.

The files of the shards are those of `shard_tasks`; `partition.json` is written last: the partition is complete.
"""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl

from beamtree.cluster.connection import results_of
from beamtree.cluster.shard_tasks import (
    ROW_NUMBER,
    CleanShard,
    FileShare,
    WholeLog,
    clean_shard,
    read_shared,
    shard_file,
    shard_folder,
    split_allow_lists,
    split_file,
    split_users,
)
from beamtree.config import LogSettings
from beamtree.data.clean_rows import RowCounts, join_parts, read_report
from beamtree.data.columns import TIMESTAMP, USER_ID
from beamtree.data.interactions import InteractionLog, wanted_rows
from beamtree.data.log_rows import WantedRows
from beamtree.data.read_report import ReadReport
from beamtree.data.tables import find_files
from beamtree.retrieval.allow_lists import read_allow_lists
from beamtree.storage import replace_text

COMPLETE = "partition.json"
SHARDS_PER_WORKER = 4
BYTES_OF_A_SHARD = 16 * 2**20
MAX_SHARDS = 4096


@dataclass(frozen=True)
class Partition:
    """Shards of a log. shards: those that have rows; has_text_users: whether ids of users are texts; counts: of all."""

    shards: tuple[int, ...]
    has_text_users: bool
    counts: RowCounts

    def report(self, log: str, settings: LogSettings, *, rejects_file: str | None = None) -> ReadReport:
        """The report on the log that was cut; errors as reading it here raises them, where no rows are left."""
        files = [str(file) for file in find_files(log)]
        return read_report(self.counts, wanted_rows(settings), source=log, files=files, rejects_file=rejects_file)


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
    """Cut a log into shards in a folder that all nodes share, or find it cut there; what is incomplete is made anew.

    Errors are those of reading the log here, but for a log without rows: `Partition.report` refuses it. InputError
    where the nodes do not share the folder.
    """
    if (folder / COMPLETE).is_file():
        kept = json.loads((folder / COMPLETE).read_text(encoding="utf-8"))
        return Partition(tuple(kept["shards"]), kept["has_text_users"], RowCounts(**kept["counts"]))
    folder.mkdir(parents=True, exist_ok=True)
    wanted = wanted_rows(settings)
    split, split_lists = ray.remote(num_cpus=1)(split_file), ray.remote(num_cpus=1)(split_allow_lists)
    files = [path.absolute() for path in find_files(log)]
    dealing = [
        split.remote(path, number, wanted, settings.bad_rows, folder, num_shards) for number, path in enumerate(files)
    ]
    listed = [] if allow_lists is None else [path.absolute() for path in find_files(allow_lists)]
    beside = [split_lists.remote(path, number, folder, num_shards) for number, path in enumerate(listed)]
    if user_table is not None:
        table = str(Path(user_table).absolute())
        beside.append(ray.remote(num_cpus=1)(split_users).remote(table, settings, folder, num_shards))
    shares: list[FileShare] = results_of(ray, dealing)
    results_of(ray, beside)
    whole = _whole_log(shares, wanted)
    parts: dict[int, list[int]] = {}
    for number, share in enumerate(shares):
        for shard in share.shards:
            parts.setdefault(shard, []).append(number)
    clean, told = ray.remote(num_cpus=1)(clean_shard), ray.put(whole)
    cleaning = {shard: clean.remote(folder, shard, numbers, told) for shard, numbers in sorted(parts.items())}
    cleaned: dict[int, CleanShard] = dict(zip(cleaning, results_of(ray, list(cleaning.values())), strict=True))
    partition = Partition(
        shards=tuple(shard for shard, made in cleaned.items() if made.num_kept),
        has_text_users=whole.columns.schema.get(USER_ID) == pl.String,
        counts=RowCounts(
            read=sum(share.num_read for share in shares),
            rejected=sum(share.num_bad for share in shares),
            kept=sum(made.num_kept for made in cleaned.values()),
            distinct=sum(made.num_distinct for made in cleaned.values()),
            events=dict(sum((Counter(made.events) for made in cleaned.values()), Counter())),
        ),
    )
    replace_text(folder / COMPLETE, json.dumps(asdict(partition)))
    for shard in parts:
        shutil.rmtree(shard_folder(folder, shard), ignore_errors=True)
    return partition


def read_in_order(folder: Path, shards: Sequence[int]) -> pl.DataFrame:
    """The clean rows of all shards in the order of the log, as in `InteractionLog`; a column at a time saves memory."""
    files = [shard_file(folder, shard) for shard in shards]
    names = [name for name in read_shared(files[0]).columns if name != ROW_NUMBER]
    order = _read_column(files, ROW_NUMBER).arg_sort()
    return pl.DataFrame([_read_column(files, name).gather(order) for name in names])


def read_shard(folder: Path, shard: int) -> InteractionLog:
    """The log of the users of a shard: what reading the whole log gives of them."""
    return InteractionLog(read_shared(shard_file(folder, shard)).drop(ROW_NUMBER))


def read_rejects(folder: Path) -> pl.DataFrame:
    """The bad rows of all files, in the order of the files; there have to be some."""
    return pl.concat([read_shared(path) for path in sorted(folder.glob("rejects-*.parquet"))])


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


def default_shards(log: str, *, workers: int) -> int:
    """Into how many shards to cut a log: by its size, and some for each worker."""
    size = sum(file.stat().st_size for file in find_files(log))
    return min(MAX_SHARDS, max(SHARDS_PER_WORKER * workers, size // BYTES_OF_A_SHARD))


def describe_files(*sources: str) -> list[tuple[str, int, int]]:
    """Name, bytes and time of the last change of each file behind some paths."""
    files = [file for source in sources for file in find_files(source)]
    return [(str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _whole_log(shares: Sequence[FileShare], wanted: WantedRows) -> WholeLog:
    parts = [share.columns for share in shares if share.columns is not None]
    columns = join_parts(parts) if parts else pl.DataFrame()
    times = [time for share in shares for time in share.times]
    return WholeLog(
        wanted=wanted,
        columns=columns,
        times=pl.Series(TIMESTAMP, times, dtype=columns.schema.get(TIMESTAMP, pl.Int64()), strict=False),
        untyped=frozenset[str]().union(*(share.untyped for share in shares)),
        places_before=[0, *accumulate(share.places for share in shares)],
    )


def _read_column(files: Sequence[Path], name: str) -> pl.Series:
    return pl.concat([read_shared(file, columns=[name]).to_series() for file in files])
