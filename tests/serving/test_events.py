"""Events on their way to the disk: calls share transactions, nobody waits for ever, refused events are not written."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from beamtree.serving.api_error import ApiError
from beamtree.serving.event_file import LOCK_SECONDS, EventFile, StoredEvent
from beamtree.serving.events import EventStore
from beamtree.serving.histories import Histories, UserEvents
from tests.serving.server import DEADLINE, wait_until

BUSY_SECONDS_BEFORE = 10.0


def store_of(file: EventFile, histories: Histories, **choices: Any) -> EventStore:
    given: dict[str, Any] = {"queue": 3, "timeout_seconds": DEADLINE} | choices
    return EventStore(file, outdate=histories.outdate, outdate_all=histories.outdate_all, **given)


def histories_of(path: Path) -> Histories:
    """Histories over a file of events, which is made."""
    EventFile(path).close()
    return Histories(None, stored=UserEvents(path, lock_seconds=DEADLINE), latest=100)


class SlowFile(EventFile):
    """Waits for a word before each call is written, and counts the calls of each transaction."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.opened = threading.Event()
        self.groups: list[int] = []

    @contextmanager
    def transaction(self, *, lock_seconds: float = LOCK_SECONDS) -> Iterator[None]:
        with super().transaction(lock_seconds=lock_seconds):
            self.groups.append(0)
            yield

    def add(self, events: Sequence[StoredEvent], *, key: str | None = None, content: bytes = b"") -> bool:
        self.groups[-1] += 1
        assert self.opened.wait(DEADLINE)
        if any(event.item == "bad" for event in events):
            raise sqlite3.OperationalError("database or disk is full")
        return super().add(events, key=key, content=content)


def test_calls_that_wait_share_a_transaction_and_too_many_are_refused(tmp_path: Path) -> None:
    histories = histories_of(tmp_path / "events.sqlite")
    file = SlowFile(tmp_path / "events.sqlite")
    store = store_of(file, histories)

    async def scenario() -> None:
        first = asyncio.create_task(store.add([StoredEvent("u", "a", 1.0)]))
        while 1 not in file.groups:
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
    assert [calls for calls in file.groups if calls] == [1, 3]
    assert histories.of("u") == ["a", "b", "c", "d"]
    store.close()


def test_a_full_disk_takes_nothing_and_the_store_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    histories = histories_of(tmp_path / "events.sqlite")
    file = SlowFile(tmp_path / "events.sqlite")
    file.opened.set()
    store = store_of(file, histories)

    async def scenario() -> None:
        with pytest.raises(ApiError) as refused:
            await store.add([StoredEvent("u", "a", 1.0), StoredEvent("u", "bad", 1.0)])
        assert (refused.value.status, refused.value.code) == (503, "store_failed")
        await store.add([StoredEvent("u", "b", 1.0)])

    asyncio.run(scenario())
    assert histories.of("u") == ["b"]
    [record] = caplog.records
    assert (record.getMessage(), vars(record)["reason"]) == (
        "events could not be written",
        "database or disk is full",
    )
    store.close()


def test_who_holds_the_lock_does_not_outlast_the_timeout_and_what_was_refused_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    histories = histories_of(path)
    store = store_of(EventFile(path), histories, timeout_seconds=0.3)
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")

    async def scenario() -> None:
        for _ in range(2):
            with pytest.raises(ApiError) as refused:
                await asyncio.wait_for(store.add([StoredEvent("u", "refused", 1.0)]), 0.9 * BUSY_SECONDS_BEFORE)
            assert (refused.value.status, refused.value.code) == (503, "timed_out")
        foreign.execute("ROLLBACK")
        for _ in range(20):  # a lock that comes and goes: whoever still has time is written
            foreign.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(store.add([StoredEvent("u", "taken", 1.0)]))
            await asyncio.sleep(0)
            foreign.execute("ROLLBACK")
            with suppress(ApiError):
                await waiting
                return
        pytest.fail("nothing was ever written")

    asyncio.run(scenario())
    foreign.close()
    assert set(histories.of("u") or []) == {"taken"}
    store.close()


def test_a_store_can_be_closed_while_another_process_has_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    store = store_of(EventFile(path), histories_of(path), timeout_seconds=0.2)
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")

    async def leave_while_waiting() -> None:
        waiting = asyncio.create_task(store.add([StoredEvent("u", "a", 1.0)]))
        await asyncio.sleep(0.01)
        waiting.cancel()

    asyncio.run(leave_while_waiting())
    closing = threading.Thread(target=store.close)
    closing.start()
    closing.join(DEADLINE)
    assert not closing.is_alive()
    foreign.close()


def test_a_call_that_comes_again_with_its_key_is_taken_once(tmp_path: Path) -> None:
    histories = histories_of(tmp_path / "events.sqlite")
    file = SlowFile(tmp_path / "events.sqlite")
    file.opened.set()
    store = store_of(file, histories)
    events = [StoredEvent("u", "a", 1.0)]

    async def scenario() -> None:
        together = [store.add(events, key="k", content=b"a") for _ in range(2)]
        assert sorted(await asyncio.gather(*together)) == [False, True]
        assert await store.add(events, key="k", content=b"a") is False
        other = asyncio.create_task(store.add([StoredEvent("u", "b", 1.0)], key="other", content=b"b"))
        with pytest.raises(ApiError) as refused:
            await store.add([StoredEvent("u", "c", 1.0)], key="k", content=b"c")
        assert (refused.value.status, refused.value.code) == (422, "key_reused")
        assert await other is True

    asyncio.run(scenario())
    assert histories.of("u") == ["a", "b"]
    store.close()


def test_a_key_of_events_that_were_not_written_can_be_used_again(tmp_path: Path) -> None:
    histories = histories_of(tmp_path / "events.sqlite")
    file = SlowFile(tmp_path / "events.sqlite")
    file.opened.set()
    store = store_of(file, histories)

    async def scenario() -> None:
        full = store.add([StoredEvent("u", "bad", 1.0)])
        keyed = store.add([StoredEvent("u", "a", 1.0)], key="k", content=b"a")
        outcomes = await asyncio.gather(keyed, full, return_exceptions=True)
        if outcomes[0] is not True:
            assert await store.add([StoredEvent("u", "a", 1.0)], key="k", content=b"a") is True

    asyncio.run(scenario())
    assert histories.of("u") == ["a"]
    store.close()


def test_an_erased_user_leaves_the_histories_of_every_server(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    one, other = histories_of(path), histories_of(path)
    stores = [store_of(EventFile(path), histories, follow_seconds=0.01) for histories in (one, other)]

    async def scenario() -> None:
        await stores[0].add([StoredEvent("u", "a", 1.0), StoredEvent("v", "b", 1.0), StoredEvent("u", "c", 1.0)])
        wait_until(lambda: other.of("u") == ["a", "c"], what="the other to hear of it")
        assert await stores[0].erase_user("u") == 2
        assert (one.of("u"), one.of("v")) == (None, ["b"])
        assert await stores[0].erase_user("u") == 0

    asyncio.run(scenario())
    wait_until(lambda: other.of("u") is None and other.of("v") == ["b"], what="the other to forget")
    for store in stores:
        store.close()


def test_old_events_are_deleted_while_serving(tmp_path: Path) -> None:
    path, now = tmp_path / "events.sqlite", [1000.0]
    file = EventFile(path, clock=lambda: now[0])
    with file.transaction():
        file.add([StoredEvent("u", "old", 1.0)])
    now[0] = 2000.0
    with file.transaction():
        file.add([StoredEvent("u", "new", 1.0)])
    histories = histories_of(tmp_path / "events.sqlite")
    store = store_of(file, histories, keep_seconds=500.0, follow_seconds=0.01)
    reader = sqlite3.connect(path)
    left = "SELECT item FROM events"
    wait_until(lambda: reader.execute(left).fetchall() == [("new",)], what="the old event to be deleted")
    reader.close()
    store.close()


def test_what_others_write_is_told_too(tmp_path: Path) -> None:
    histories = histories_of(tmp_path / "events.sqlite")
    store = store_of(EventFile(tmp_path / "events.sqlite"), histories, follow_seconds=0.01)
    other = EventFile(tmp_path / "events.sqlite")
    with other.transaction(lock_seconds=DEADLINE):
        other.add([StoredEvent(7, 8, 1.0)])
    wait_until(lambda: histories.of(7) == [8], what="the other's event")
    other.close()
    store.close()
