"""Histories of the log and of stored events: bounded in memory, read again when they are outdated, old or dropped."""

import sqlite3
import threading
from pathlib import Path

import polars as pl
import pytest

from beamtree.data.interactions import InteractionLog
from beamtree.data.vocabulary import Id
from beamtree.errors import IdTypeError
from beamtree.serving.api_error import ApiError
from beamtree.serving.event_file import EventFile, StoredEvent
from beamtree.serving.histories import Histories, UserEvents
from tests.serving.server import DEADLINE


class Stored:
    """A store in memory that counts how often it is read."""

    def __init__(self) -> None:
        self.events: dict[Id, list[Id]] = {}
        self.reads: list[Id] = []

    def add(self, user: Id, *items: Id) -> None:
        self.events.setdefault(user, []).extend(items)

    def close(self) -> None:
        """There is nothing to close."""

    def latest(self, user: Id, *, count: int) -> list[Id]:
        self.reads.append(user)
        return self.events.get(user, [])[-count:]


def test_the_log_is_joined_with_the_events_and_the_latest_are_kept() -> None:
    rows = [(1, 10, 3), (1, 11, 1), (2, 12, 1), (1, 13, 3)]
    log = InteractionLog(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))
    stored = Stored()
    histories = Histories(log, stored=stored, latest=4)
    assert histories.of(1) == [11, 10, 13]
    assert histories.of(3) is None
    stored.add(1, 14, 16)
    stored.add(3, 15)
    histories.outdate([1, 3, 1])
    assert histories.of(1) == [10, 13, 14, 16]
    assert histories.of(3) == [15]
    stored.add(1, *range(20, 30))
    histories.outdate([1])
    assert histories.of(1) == [26, 27, 28, 29]
    assert histories.of("1") is None
    histories.check_users([1, 3])
    with pytest.raises(IdTypeError, match="user_id: the users of the log are integers, got '1'"):
        histories.check_users([1, "1"])
    assert Histories(log, stored=None, latest=2).of(1) == [10, 13]


def test_a_history_is_read_again_only_when_it_is_outdated_or_old() -> None:
    stored, now = Stored(), [0.0]
    stored.add("u", "a")
    histories = Histories(None, stored=stored, latest=9, cache_seconds=60.0, clock=lambda: now[0])
    assert [histories.of("u"), histories.of("u"), histories.of("nobody"), histories.of("nobody")] == [
        *([["a"]] * 2),
        *([None] * 2),
    ]
    assert stored.reads == ["u", "nobody"]
    histories.outdate(["other"])
    assert (histories.of("u"), stored.reads) == (["a"], ["u", "nobody"])
    stored.add("u", "b")
    histories.outdate(["u"])
    assert (histories.of("u"), stored.reads) == (["a", "b"], ["u", "nobody", "u"])
    del stored.events["u"][0]
    now[0] = 59.0
    assert histories.of("u") == ["a", "b"]
    now[0] = 61.0
    assert histories.of("u") == ["b"]
    stored.events.clear()
    histories.outdate_all()
    assert histories.of("u") is None
    assert histories.cached_bytes > 0


def test_what_is_kept_is_bounded_and_a_dropped_user_is_read_again() -> None:
    stored = Stored()
    histories = Histories(None, stored=stored, latest=1000, cache_bytes=100_000)
    for user in range(2000):
        stored.add(user, user)
        assert histories.of(user) == [user]
        assert histories.cached_bytes <= 100_000
    assert histories.cached_bytes > 90_000
    assert stored.reads == list(range(2000))
    assert histories.of(1999) == [1999]
    assert len(stored.reads) == 2000
    assert histories.of(0) == [0]
    assert stored.reads[-1] == 0
    stored.add("long", *(f"{number:0500}" for number in range(1000)))
    assert len(histories.of("long") or ()) == 1000
    assert histories.cached_bytes <= 100_000


def test_events_that_come_while_a_history_is_read_are_not_lost() -> None:
    begun, opened = threading.Event(), threading.Event()

    class Slow(Stored):
        def latest(self, user: Id, *, count: int) -> list[Id]:
            items = super().latest(user, count=count)
            begun.set()
            assert opened.wait(DEADLINE)
            return items

    stored = Slow()
    stored.add("u", "a")
    histories = Histories(None, stored=stored, latest=9)
    reader = threading.Thread(target=histories.of, args=("u",))
    reader.start()
    assert begun.wait(DEADLINE)
    stored.add("u", "b")
    histories.outdate(["u"])
    opened.set()
    reader.join()
    assert histories.of("u") == ["a", "b"]


def test_events_of_a_user_are_read_from_the_file_by_an_index(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "events.sqlite")
    with file.transaction():
        file.add([StoredEvent(user, item, 1.0) for item in range(10) for user in (7, "7")])
    stored = UserEvents(tmp_path / "events.sqlite", lock_seconds=DEADLINE)
    assert stored.latest(7, count=3) == [7, 8, 9]
    assert stored.latest("7", count=100) == list(range(10))
    assert stored.latest("nobody", count=3) == []
    [plan] = stored._connection.execute(
        "EXPLAIN QUERY PLAN SELECT item FROM events WHERE user = ? ORDER BY id DESC LIMIT ?", (7, 3)
    ).fetchall()
    assert "USING INDEX events_of_user" in plan[3]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        stored._connection.execute("DELETE FROM events")
    stored.close()
    with pytest.raises(ApiError) as refusal:
        stored.latest(7, count=3)
    assert (refusal.value.status, refusal.value.code) == (503, "store_failed")
    file.close()
