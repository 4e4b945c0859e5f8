"""A log cut into shards by user: nobody is lost, nobody is cut in two, and the order of rows stays."""

from pathlib import Path

import polars as pl
import pytest

from beamtree.cluster.partition import Partition, partition_by_user, read_shard, read_shard_lists, read_shard_users
from beamtree.cluster.shard_tasks import shard_of_users
from beamtree.config import ROW_ORDER, LogSettings
from beamtree.data.interactions import InteractionLog, read_log
from beamtree.errors import InputError, NoRowsError
from tests.cluster.tasks_here import TasksHere

SHARDS = 3
READ = LogSettings()


def write(folder: Path, *files: str) -> Path:
    """Into a folder of their own, which is returned."""
    log = folder / "log"
    log.mkdir()
    for number, text in enumerate(files):
        (log / f"{number}.csv").write_text(text)
    return log


def split(log: Path, folder: Path, settings: LogSettings = READ) -> Partition:
    return partition_by_user(TasksHere(), str(log), settings=settings, folder=folder, num_shards=SHARDS)


def histories(log: InteractionLog) -> dict[object, list[object]]:
    """By user, oldest first, those of one moment in the order of the log."""
    ordered = log.frame.sort("timestamp", maintain_order=True)
    return dict(ordered.group_by("user_id", maintain_order=True).agg("item_id").iter_rows())


def test_shards_together_are_the_log(tmp_path: Path) -> None:
    rows = [f"{user},{item},{item % 3}" for user in range(20) for item in range(user % 4 + 1)]
    log = write(tmp_path, *("user_id,item_id,timestamp\n" + "\n".join(rows[place::2]) + "\n" for place in range(2)))
    partition = split(log, tmp_path / "shards")
    whole = histories(read_log(str(log), READ))
    of_shards = [histories(read_shard(tmp_path / "shards", shard)) for shard in partition.shards]
    assert sum(len(some) for some in of_shards) == len(whole)
    assert {user: items for some in of_shards for user, items in some.items()} == whole
    assert len(partition.shards) == SHARDS
    assert (partition.counts.distinct, partition.counts.rejected) == (len(rows), 0)


def test_ids_are_texts_everywhere_as_soon_as_one_file_has_texts(tmp_path: Path) -> None:
    log = write(tmp_path, "user_id,item_id,timestamp\n7,1,1\n", "user_id,item_id,timestamp\nu8,1,2\n7,2,2\n")
    partition = split(log, tmp_path / "shards")
    logs = [read_shard(tmp_path / "shards", shard) for shard in partition.shards]
    assert {user: items for log in logs for user, items in histories(log).items()} == {"7": [1, 2], "u8": [1]}


def test_rows_without_times_follow_the_order_of_files(tmp_path: Path) -> None:
    log = write(tmp_path, "user_id,item_id\n1,9\n1,3\n", "user_id,item_id\n1,5\n")
    partition = split(log, tmp_path / "shards", LogSettings(columns={"timestamp": ROW_ORDER}))
    (shard,) = partition.shards
    assert histories(read_shard(tmp_path / "shards", shard)) == {1: [9, 3, 5]}


def test_a_repeat_in_another_file_is_dropped(tmp_path: Path) -> None:
    log = write(tmp_path, *["user_id,item_id,timestamp\n1,9,4\n"] * 2)
    partition = split(log, tmp_path / "shards")
    assert len(read_shard(tmp_path / "shards", partition.shards[0])) == 1


def test_a_log_that_the_filters_leave_nothing_of_is_refused_but_not_a_file(tmp_path: Path) -> None:
    rated = "user_id,item_id,timestamp,rating\n1,9,4,{}\n"
    log = write(tmp_path, rated.format(2), rated.format(5))
    some, none = (LogSettings(keep={"min_rating": stars}) for stars in (3.0, 6.0))
    assert split(log, tmp_path / "some", some).report(str(log), some).rows_filtered == 1
    with pytest.raises(NoRowsError, match="no rows left of 2; 0 were bad and 2 were filtered out"):
        split(log, tmp_path / "none", none).report(str(log), none)


def test_a_folder_that_is_not_shared_is_noticed(tmp_path: Path) -> None:
    """The driver's node does not see what the tasks of another one wrote."""
    partition = split(write(tmp_path, "user_id,item_id,timestamp\n1,9,4\n"), tmp_path / "shards")
    with pytest.raises(InputError, match="a folder that all nodes share"):
        read_shard(tmp_path / "of_another_node", partition.shards[0])


def test_lists_go_to_the_shard_of_their_user(tmp_path: Path) -> None:
    log = write(tmp_path, "user_id,item_id,timestamp\n1,9,4\n2,9,4\nx3,9,4\n")
    lists_file = tmp_path / "lists.parquet"
    pl.DataFrame({"user_id": ["1", "x3"], "allow": [[9], [9, 4]]}).write_parquet(lists_file)
    partition = partition_by_user(
        TasksHere(),
        str(log),
        settings=READ,
        folder=tmp_path / "shards",
        num_shards=SHARDS,
        allow_lists=str(lists_file),
    )
    found: dict[object, list[int]] = {}
    for shard in partition.shards:
        lists = read_shard_lists(tmp_path / "shards", shard, partition)
        users = histories(read_shard(tmp_path / "shards", shard)).keys()
        if lists is not None:
            found |= dict(lists.filter(pl.col("user_id").is_in(list(users))).iter_rows())
    assert found == {"1": [9], "x3": [9, 4]}


def test_a_user_table_goes_to_the_shards_of_its_users_whatever_its_columns_are_called(tmp_path: Path) -> None:
    log = write(tmp_path, "who,item_id\n1,9\n2,9\n3,9\n")
    users = pl.DataFrame({"who": [3, 2, 1], "shard": ["c", "b", "a"]})
    users.write_parquet(tmp_path / "users.parquet")
    partition = partition_by_user(
        TasksHere(),
        str(log),
        settings=LogSettings(columns={"user_id": "who", "timestamp": ROW_ORDER}),
        folder=tmp_path / "shards",
        num_shards=SHARDS,
        user_table=str(tmp_path / "users.parquet"),
    )
    tables = {shard: read_shard_users(tmp_path / "shards", shard) for shard in partition.shards}
    for shard, table in tables.items():
        assert table is not None
        assert set(table["user_id"]) == set(read_shard(tmp_path / "shards", shard).frame["user_id"])
    found = pl.concat([table for table in tables.values() if table is not None]).sort("user_id")
    assert found.rows() == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("users", [pl.Series([17, 5, 123]), pl.Series(["17", "5", "123"])])
def test_the_shard_of_a_user_is_the_same_for_ever(users: pl.Series) -> None:
    """A folder that was begun by another version of beamtree, or with ids as texts, must not deal users anew."""
    assert shard_of_users(users, num_shards=100).tolist() == [82, 66, 22]
