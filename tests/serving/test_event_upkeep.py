"""What a store of events does beside writing: it closes in order, deletes what is old, overwrites what was erased."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from beamtree.data.vocabulary import Id
from beamtree.serving.api_error import ApiError
from beamtree.serving.event_file import EventFile, StoredEvent
from beamtree.serving.events import EventStore
from tests.serving.server import DEADLINE, wait_until

NEVER = 3600.0
"""Seconds between two looks at the file: whatever happens sooner does not wait for one."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.sqlite"


class Told:
    """What a store tells whoever keeps histories: the users with new events."""

    def __init__(self) -> None:
        self.users: list[Id] = []

    def outdate(self, users: Iterable[Id]) -> None:
        self.users += users

    def outdate_all(self) -> None:
        self.users.append("all")


class HeldFile(EventFile):
    """Writes no call before it may."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun, self.opened = threading.Event(), threading.Event()

    def add(self, events: Sequence[StoredEvent], *, key: str | None = None, content: bytes = b"") -> bool:
        self.begun.set()
        assert self.opened.wait(DEADLINE)
        return super().add(events, key=key, content=content)


class CountedFile(EventFile):
    """Prunes and scrubs with these results, the last of them again and again; how often it was asked to."""

    def __init__(self, path: Path, *, pruned: Sequence[int | Exception] = (0,), scrubbed: Sequence[bool] = (True,)):
        super().__init__(path)
        self.prunings = self.scrubbings = 0
        self._pruned, self._scrubbed = pruned, scrubbed

    def prune(self, *, older_than: float) -> int:
        assert older_than == float("inf"), "unless it is told how long to keep events, a store keeps them"
        self.prunings += 1
        outcome = self._pruned[min(self.prunings, len(self._pruned)) - 1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def scrub(self) -> bool:
        self.scrubbings += 1
        return self._scrubbed[min(self.scrubbings, len(self._scrubbed)) - 1]


def store_of(file: EventFile, told: Told | None = None, **choices: Any) -> EventStore:
    told = told or Told()
    given: dict[str, Any] = {"queue": 9, "timeout_seconds": DEADLINE} | choices
    return EventStore(file, outdate=told.outdate, outdate_all=told.outdate_all, **given)


def event(item: str) -> list[StoredEvent]:
    return [StoredEvent("u", item, 1.0)]


def items_in(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    items = [item for (item,) in connection.execute("SELECT item FROM events ORDER BY id")]
    connection.close()
    return items


async def add_some(store: EventStore, *, calls: int) -> None:
    for _ in range(calls):
        await store.add(event("a"))


def test_a_store_works_at_once_and_closes_at_once_however_rarely_it_looks(path: Path) -> None:
    store = store_of(EventFile(path), follow_seconds=NEVER)
    asyncio.run(asyncio.wait_for(store.add(event("a")), DEADLINE))
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(DEADLINE)
    assert not closing.is_alive()
    assert items_in(path) == ["a"]
    assert [part.name for part in path.parent.iterdir()] == [path.name], "the last to close leaves one file"


def test_calls_that_come_while_others_are_written_are_next(path: Path) -> None:
    file = HeldFile(path)
    store = store_of(file, follow_seconds=NEVER)

    async def scenario() -> None:
        first = asyncio.create_task(store.add(event("first")))
        await asyncio.to_thread(file.begun.wait, DEADLINE)
        second = asyncio.create_task(store.add(event("second")))
        await asyncio.sleep(0)
        file.opened.set()
        assert all(await asyncio.wait_for(asyncio.gather(first, second), DEADLINE))

    asyncio.run(scenario())
    store.close()
    assert items_in(path) == ["first", "second"]


class WatchedFile(EventFile):
    """Counts how often somebody looks for what others have written."""

    looks = 0

    def has_erasures(self) -> bool:
        self.looks += 1
        return super().has_erasures()


def test_a_store_without_work_rests(path: Path) -> None:
    began = time.monotonic()
    file = WatchedFile(path)
    store = store_of(file)
    time.sleep(0.1)
    assert file.looks <= 1 + (time.monotonic() - began) / 0.25
    store.close()


def test_what_waits_is_written_before_the_store_closes_and_nothing_is_taken_afterwards(path: Path) -> None:
    file = HeldFile(path)
    store = store_of(file)

    async def scenario() -> None:
        first = asyncio.create_task(store.add(event("first")))
        await asyncio.to_thread(file.begun.wait, DEADLINE)
        waiting = asyncio.create_task(store.add(event("waiting")))
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(store.close))
        await asyncio.to_thread(wait_until, lambda: store._is_closed, what="the closing to begin")
        file.opened.set()
        assert all(await asyncio.wait_for(asyncio.gather(first, waiting), DEADLINE))
        await asyncio.wait_for(closing, DEADLINE)
        with pytest.raises(ApiError) as refused:
            await store.add(event("late"))
        assert (refused.value.status, refused.value.code) == (503, "overloaded")

    asyncio.run(scenario())
    assert items_in(path) == ["first", "waiting"]


def test_a_call_that_is_being_written_cannot_be_taken_back_and_is_told_so(path: Path) -> None:
    file = HeldFile(path)
    store = store_of(file, timeout_seconds=0.2)

    async def scenario() -> str:
        with pytest.raises(ApiError) as refused:
            await store.add(event("a"))
        assert (refused.value.status, refused.value.code) == (503, "timed_out")
        return str(refused.value)

    while "none was taken" in (message := asyncio.run(scenario())):  # the writer has not come to it in time
        assert not file.begun.is_set()
    assert "may yet. Send it again with the same Idempotency-Key" in message
    file.opened.set()
    wait_until(lambda: items_in(path) == ["a"], what="the call that timed out")
    store.close()


def test_a_client_that_leaves_while_it_is_written_is_no_failure(path: Path) -> None:
    file = HeldFile(path)
    store = store_of(file)
    failures: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        leaving = asyncio.create_task(store.add(event("a")))
        await asyncio.to_thread(file.begun.wait, DEADLINE)
        leaving.cancel()
        file.opened.set()
        await store.add(event("b"))

    asyncio.run(scenario())
    store.close()
    assert items_in(path) == ["a", "b"]
    assert failures == []


def test_a_file_that_was_moved_refuses_every_call(path: Path) -> None:
    store = store_of(EventFile(path))
    path.rename(path.with_name("elsewhere"))

    async def scenario() -> None:
        for _ in range(2):
            with pytest.raises(ApiError) as refused:
                await store.add(event("a"))
            assert (refused.value.status, refused.value.code) == (503, "store_moved")

    asyncio.run(scenario())
    store.close()


class UnreadableFile(EventFile):
    """Cannot be read the first time."""

    is_readable = False

    def read_new(self) -> Iterator[list[StoredEvent]]:
        if not self.is_readable:
            self.is_readable = True
            raise sqlite3.OperationalError("disk I/O error")
        return super().read_new()


def test_a_reading_that_fails_is_told_and_made_up_for(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    store = store_of(UnreadableFile(path), told, follow_seconds=0.001)
    wait_until(lambda: bool(caplog.records), what="a line in the log")
    asyncio.run(store.add(event("a")))
    store.close()
    assert told.users == ["u"]
    [record] = caplog.records
    assert (record.getMessage(), vars(record)["reason"]) == ("events could not be read", "disk I/O error")


def test_only_those_with_new_events_are_told_of(path: Path) -> None:
    earlier = EventFile(path)
    with earlier.transaction():
        earlier.add([StoredEvent("earlier", "a", 1.0)])
    earlier.close()
    told = Told()
    store = store_of(EventFile(path), told)
    asyncio.run(store.add(event("a")))
    assert told.users == ["u"]
    store.close()


def test_old_events_go_step_by_step_and_then_there_is_a_rest(path: Path) -> None:
    file = CountedFile(path, pruned=(10_000, 10_000, 7, 0))
    store = store_of(file, follow_seconds=0.001)
    wait_until(lambda: file.prunings == 4, what="all that is old to be deleted")
    asyncio.run(add_some(store, calls=20))
    store.close()
    assert file.prunings == 4


def test_a_pruning_that_fails_is_told_and_tried_again_after_a_rest(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = CountedFile(path, pruned=(sqlite3.OperationalError("disk I/O error"), 0))
    store = store_of(file, follow_seconds=0.001)
    asyncio.run(add_some(store, calls=20))
    store.close()
    assert file.prunings == 1
    [record] = caplog.records
    assert (record.getMessage(), vars(record)["reason"]) == ("old events could not be deleted", "disk I/O error")


def test_old_events_are_looked_for_again_after_the_rest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamtree.serving.events.SECONDS_BETWEEN_PRUNINGS", 0.01)
    file = CountedFile(path)
    store = store_of(file, follow_seconds=0.001)
    wait_until(lambda: file.prunings > 3, what="several looks for old events")
    store.close()


def test_what_was_erased_is_overwritten_on_disk(path: Path) -> None:
    store = store_of(EventFile(path), follow_seconds=0.001)
    asyncio.run(store.add([StoredEvent("someone-secret", "a", 1.0), StoredEvent("u", "b", 1.0)]))
    assert any(b"someone-secret" in part.read_bytes() for part in path.parent.iterdir())
    asyncio.run(store.erase_user("someone-secret"))
    assert not any(b"someone-secret" in part.read_bytes() for part in path.parent.iterdir())
    store.close()


def test_overwriting_is_tried_until_it_succeeds_and_only_after_an_erasure(path: Path) -> None:
    file = CountedFile(path, scrubbed=(False, False, True))
    store = store_of(file, follow_seconds=0.001)
    asyncio.run(add_some(store, calls=5))
    assert file.scrubbings == 0
    asyncio.run(store.erase_user("u"))
    wait_until(lambda: file.scrubbings == 3, what="the old pages to be overwritten")
    asyncio.run(add_some(store, calls=5))
    store.close()
    assert file.scrubbings == 3
