"""The store of events: what is in the file is told once, in order, and nothing is half written."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

from beamtree.data.interactions import InteractionLog
from beamtree.data.vocabulary import Id
from beamtree.errors import DataError, IdTypeError
from beamtree.serving.api_error import ApiError
from beamtree.serving.events import EventFile, EventStore, StoredEvent
from beamtree.serving.histories import Histories
from tests.serving.server import DEADLINE, wait_until


def told(file: EventFile) -> list[tuple[Id, Id]]:
    return [(event.user, event.item) for events in file.read_new() for event in events]


def test_what_was_appended_is_read_once_in_order_with_its_types(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "events.sqlite")
    file.append([StoredEvent(1, "a", 5.0), StoredEvent("1", 2, 4.0)])
    assert told(file) == [(1, "a"), ("1", 2)]
    assert told(file) == []
    file.append([StoredEvent(-(2**63), 2**63 - 1, 1.0)])
    assert told(file) == [(-(2**63), 2**63 - 1)]
    file.close()
    again = EventFile(tmp_path / "events.sqlite")
    assert told(again) == [(1, "a"), ("1", 2), (-(2**63), 2**63 - 1)]
    again.close()


def test_a_group_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "events.sqlite")

    def two_and_then_trouble() -> Iterable[StoredEvent]:
        yield StoredEvent(1, 1, 1.0)
        yield StoredEvent(1, 2, 1.0)
        raise MemoryError

    with pytest.raises(MemoryError):
        file.append(two_and_then_trouble())
    assert told(file) == []
    file.append([StoredEvent(1, 3, 1.0)])
    assert told(file) == [(1, 3)]
    file.close()


def test_the_file_is_flushed_at_each_commit(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "events.sqlite")
    connection = file._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    file.close()


def test_other_databases_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.close()
    with pytest.raises(DataError, match="another program's database"):
        EventFile(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("orders",)]
    connection.close()
    with pytest.raises(DataError, match="folder that is writable"):
        EventFile(tmp_path / "missing" / "events.sqlite")


class SlowFile(EventFile):
    """Waits for a word before each transaction and counts them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.opened = threading.Event()
        self.groups: list[int] = []

    def append(self, events: Iterable[StoredEvent]) -> None:
        group = list(events)
        self.groups.append(len(group))
        assert self.opened.wait(DEADLINE)
        if any(event.item == "bad" for event in group):
            raise sqlite3.OperationalError("database or disk is full")
        super().append(group)


def test_calls_that_wait_share_a_transaction_and_too_many_are_refused(tmp_path: Path) -> None:
    histories = Histories(None, latest=100)
    file = SlowFile(tmp_path / "events.sqlite")
    store = EventStore(file, learn=histories.add, queue=3)

    async def scenario() -> None:
        first = asyncio.create_task(store.add([StoredEvent("u", "a", 1.0)]))
        while file.groups != [1]:
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(store.add([StoredEvent("u", item, 1.0)])) for item in "bcd"]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as refused:
            await store.add([StoredEvent("u", "e", 1.0)])
        assert refused.value.status == 503
        assert histories.of("u") is None
        file.opened.set()
        await asyncio.wait_for(asyncio.gather(first, *others), DEADLINE)

    asyncio.run(scenario())
    assert file.groups == [1, 3]
    assert histories.of("u") == ["a", "b", "c", "d"]
    store.close()


def test_a_full_disk_takes_nothing_and_the_store_goes_on(tmp_path: Path) -> None:
    histories = Histories(None, latest=100)
    file = SlowFile(tmp_path / "events.sqlite")
    file.opened.set()
    store = EventStore(file, learn=histories.add, queue=3)

    async def scenario() -> None:
        with pytest.raises(ApiError) as refused:
            await store.add([StoredEvent("u", "a", 1.0), StoredEvent("u", "bad", 1.0)])
        assert (refused.value.status, refused.value.code) == (503, "store_failed")
        await store.add([StoredEvent("u", "b", 1.0)])

    asyncio.run(scenario())
    assert histories.of("u") == ["b"]
    store.close()


def test_what_others_write_is_told_too(tmp_path: Path) -> None:
    histories = Histories(None, latest=100)
    store = EventStore(EventFile(tmp_path / "events.sqlite"), learn=histories.add, queue=3, follow_seconds=0.01)
    other = EventFile(tmp_path / "events.sqlite")
    other.append([StoredEvent(7, 8, 1.0)])
    wait_until(lambda: histories.of(7) == [8], what="the other's event")
    other.close()
    store.close()


def test_histories_join_the_log_with_the_events_and_keep_the_latest() -> None:
    rows = [(1, 10, 3), (1, 11, 1), (2, 12, 1), (1, 13, 3)]
    log = InteractionLog(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))
    histories = Histories(log, latest=4)
    assert histories.of(1) == [11, 10, 13]
    assert histories.of(3) is None
    histories.add([(1, 14), (3, 15), (1, 16)])
    assert histories.of(1) == [10, 13, 14, 16]
    assert histories.of(3) == [15]
    histories.add([(1, item) for item in range(20, 30)])
    assert histories.of(1) == [26, 27, 28, 29]
    assert histories.of("1") is None
    histories.check_users([1, 3])
    with pytest.raises(IdTypeError, match="user_id: the users of the log are integers, got '1'"):
        histories.check_users([1, "1"])
