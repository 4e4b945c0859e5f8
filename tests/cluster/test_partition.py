"""A log cut into shards by user: nobody is lost, nobody is cut in two, and the order of rows stays."""

from pathlib import Path

import polars as pl
import pytest

from beamtree.cluster.partition import (
    FileShare,
    Partition,
    read_shard,
    read_shard_lists,
    shard_of_users,
    split_allow_lists,
    split_file,
)
from beamtree.config import ROW_ORDER, LogSettings
from beamtree.data.interactions import InteractionLog, read_log

SHARDS = 3
READ = LogSettings()


def write(folder: Path, *files: str) -> list[Path]:
    paths = [folder / f"{number}.csv" for number in range(len(files))]
    for path, text in zip(paths, files, strict=True):
        path.write_text(text)
    return paths


def split(paths: list[Path], folder: Path, settings: LogSettings = READ) -> Partition:
    """In this process, as the tasks of `partition_by_user` do it."""
    shares = [split_file(path, number, settings, folder, SHARDS) for number, path in enumerate(paths)]
    return Partition(
        shards=tuple(sorted({shard for share in shares for shard in share.shards})),
        rows=sum(share.rows for share in shares),
        rejected=sum(share.rejected for share in shares),
        has_text_users=any(share.has_text_users for share in shares),
        has_text_items=any(share.has_text_items for share in shares),
    )


def histories(log: InteractionLog) -> dict[object, list[object]]:
    """By user, oldest first, those of one moment in the order of the log."""
    ordered = log.frame.sort("timestamp", maintain_order=True)
    return dict(ordered.group_by("user_id", maintain_order=True).agg("item_id").iter_rows())


def test_shards_together_are_the_log(tmp_path: Path) -> None:
    rows = [f"{user},{item},{item % 3}" for user in range(20) for item in range(user % 4 + 1)]
    paths = write(tmp_path, *("user_id,item_id,timestamp\n" + "\n".join(rows[place::2]) + "\n" for place in range(2)))
    partition = split(paths, tmp_path / "shards")
    whole = histories(read_log(str(tmp_path / "*.csv"), READ))
    of_shards = [histories(read_shard(tmp_path / "shards", shard, partition)) for shard in partition.shards]
    assert sum(len(some) for some in of_shards) == len(whole)
    assert {user: items for some in of_shards for user, items in some.items()} == whole
    assert len(partition.shards) == SHARDS
    assert (partition.rows, partition.rejected) == (len(rows), 0)


def test_ids_are_texts_everywhere_as_soon_as_one_file_has_texts(tmp_path: Path) -> None:
    paths = write(tmp_path, "user_id,item_id,timestamp\n7,1,1\n", "user_id,item_id,timestamp\nu8,1,2\n7,2,2\n")
    partition = split(paths, tmp_path / "shards")
    logs = [read_shard(tmp_path / "shards", shard, partition) for shard in partition.shards]
    assert {user: items for log in logs for user, items in histories(log).items()} == {"7": [1, 2], "u8": [1]}


def test_rows_without_times_follow_the_order_of_files(tmp_path: Path) -> None:
    paths = write(tmp_path, "user_id,item_id\n1,9\n1,3\n", "user_id,item_id\n1,5\n")
    partition = split(paths, tmp_path / "shards", LogSettings(columns={"timestamp": ROW_ORDER}))
    (shard,) = partition.shards
    assert histories(read_shard(tmp_path / "shards", shard, partition)) == {1: [9, 3, 5]}


def test_a_repeat_in_another_file_is_dropped(tmp_path: Path) -> None:
    paths = write(tmp_path, *["user_id,item_id,timestamp\n1,9,4\n"] * 2)
    partition = split(paths, tmp_path / "shards")
    assert len(read_shard(tmp_path / "shards", partition.shards[0], partition)) == 1


def test_a_file_that_the_filters_leave_nothing_of_is_no_error(tmp_path: Path) -> None:
    (path,) = write(tmp_path, "user_id,item_id,timestamp,rating\n1,9,4,2\n")
    assert split_file(path, 0, LogSettings(keep={"min_rating": 3.0}), tmp_path / "shards", SHARDS) == FileShare(())


def test_lists_go_to_the_shard_of_their_user(tmp_path: Path) -> None:
    paths = write(tmp_path, "user_id,item_id,timestamp\n1,9,4\n2,9,4\nx3,9,4\n")
    partition = split(paths, tmp_path / "shards")
    pl.DataFrame({"user_id": ["1", "x3"], "allow": [[9], [9, 4]]}).write_parquet(tmp_path / "lists.parquet")
    split_allow_lists(tmp_path / "lists.parquet", 0, tmp_path / "shards", SHARDS)
    found: dict[object, list[int]] = {}
    for shard in partition.shards:
        lists = read_shard_lists(tmp_path / "shards", shard, partition)
        users = histories(read_shard(tmp_path / "shards", shard, partition)).keys()
        if lists is not None:
            found |= dict(lists.filter(pl.col("user_id").is_in(list(users))).iter_rows())
    assert found == {"1": [9], "x3": [9, 4]}


@pytest.mark.parametrize("users", [pl.Series([17, 5, 123]), pl.Series(["17", "5", "123"])])
def test_the_shard_of_a_user_is_the_same_for_ever(users: pl.Series) -> None:
    """A folder that was begun by another version of beamtree, or with ids as texts, must not deal users anew."""
    assert shard_of_users(users, num_shards=100).tolist() == [82, 66, 22]
