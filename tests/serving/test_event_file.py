"""The file of events: what is in it is told once, in order, nothing is half written, and its loss is noticed."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from beamtree.data.vocabulary import Id
from beamtree.errors import DataError
from beamtree.serving.event_file import (
    DAY,
    KEY_SECONDS,
    ROWS_AT_A_TIME,
    EventFile,
    FileLocked,
    FileReplaced,
    KeyReused,
    StoredEvent,
    prune_all,
)

LARGEST = 2**63 - 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.sqlite"


@pytest.fixture
def file(path: Path) -> Iterator[EventFile]:
    opened = EventFile(path)
    yield opened
    opened.close()


def append(file: EventFile, *events: tuple[Id, Id]) -> None:
    with file.transaction():
        file.add([StoredEvent(user, item, 1.0) for user, item in events])


def told(file: EventFile) -> list[tuple[Id, Id]]:
    return [(event.user, event.item) for events in file.read_new() for event in events]


def test_what_was_added_is_read_once_in_order_with_its_types(path: Path) -> None:
    file = EventFile(path)
    append(file, (1, "a"), ("1", 2))
    assert told(file) == [(1, "a"), ("1", 2)]
    assert told(file) == []
    append(file, (-(2**63), 2**63 - 1))
    assert told(file) == [(-(2**63), 2**63 - 1)]
    file.close()
    again = EventFile(path)
    assert told(again) == [(1, "a"), ("1", 2), (-(2**63), 2**63 - 1)]
    again.close()


def test_a_transaction_is_written_whole_or_not_at_all(file: EventFile) -> None:
    def add_two() -> None:
        with file.transaction():
            file.add([StoredEvent(1, 1, 1.0)])
            file.add([StoredEvent(1, 2**70, 1.0)])

    with pytest.raises(OverflowError):
        add_two()
    assert told(file) == []
    append(file, (1, 3))
    assert told(file) == [(1, 3)]


def test_the_file_is_flushed_at_each_commit(file: EventFile) -> None:
    assert file._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert file._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_other_databases_are_left_alone(path: Path, tmp_path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(DataError, match="another program's database"):
        EventFile(path)
    assert path.read_bytes() == before
    with pytest.raises(DataError, match="folder that is writable"):
        EventFile(tmp_path / "missing" / "events.sqlite")
    with pytest.raises(DataError, match="no such file of events"):
        EventFile.existing(tmp_path / "other.sqlite")


def test_a_file_of_the_first_format_is_read_and_kept_up(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 1650811245")
        connection.execute("PRAGMA user_version = 1")
        connection.execute(
            "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, user NOT NULL, item NOT NULL, "
            "timestamp NOT NULL)"
        )
        connection.execute("INSERT INTO events (user, item, timestamp) VALUES (7, 'a', 1.5)")
    connection.close()
    file = EventFile(path, clock=lambda: 1000.0)
    assert told(file) == [(7, "a")]
    with file.transaction():
        assert file.prune(older_than=10.0) == 0, "its age counts from now on"
    append(file, (7, "b"))
    assert told(file) == [(7, "b")]
    file.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 4")
    connection.close()
    with pytest.raises(DataError, match="newer version's"):
        EventFile(path)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("harm", ["delete", "move", "replace"])
def test_nothing_is_confirmed_once_the_file_is_gone(file: EventFile, path: Path, suffix: str, harm: str) -> None:
    append(file, (1, 1))
    victim, aside = Path(f"{path}{suffix}"), path.with_name("aside")
    shutil.move(victim, aside)
    if harm == "delete":
        aside.unlink()
    elif harm == "replace":
        shutil.copy(aside, victim)
    with pytest.raises(FileReplaced, match="moved, deleted or replaced"):
        append(file, (1, 2))
    if harm != "delete":
        shutil.move(aside, victim)
        append(file, (1, 3))
        assert told(file) == [(1, 1), (1, 3)]


def test_a_file_that_goes_during_a_transaction_confirms_nothing(file: EventFile, path: Path) -> None:
    with pytest.raises(FileReplaced), file.transaction():
        path.rename(path.with_name("aside"))


def test_a_file_behind_a_link_is_found(path: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    path.symlink_to(tmp_path / "disk" / "real.sqlite")
    file = EventFile(path)
    append(file, (1, 1))
    assert told(file) == [(1, 1)]
    file.close()


def test_who_writes_keeps_others_out_for_a_bounded_time(file: EventFile, path: Path) -> None:
    other = EventFile(path)
    with other.transaction(), pytest.raises(FileLocked, match="another process"), file.transaction(lock_seconds=0.01):
        pytest.fail("two are writing")
    append(file, (1, 1))
    with other.transaction(), pytest.raises(DataError, match="another process"):
        EventFile(path, lock_seconds=0.01)
    other.close()


def test_a_transaction_that_cannot_begin_says_so_and_leaves_the_other_alone(file: EventFile) -> None:
    with file.transaction():
        file.add([StoredEvent(1, 1, 1.0)])
        with pytest.raises(sqlite3.OperationalError, match="within a transaction"), file.transaction():
            pytest.fail("two transactions at once")
        file.add([StoredEvent(1, 2, 1.0)])
    assert told(file) == [(1, 1), (1, 2)]


def test_a_key_stands_for_the_same_events_for_a_day(path: Path) -> None:
    now = [1000.0]
    file = EventFile(path, clock=lambda: now[0])

    def add(key: str, content: bytes) -> bool:
        with file.transaction():
            return file.add([StoredEvent("u", content.decode(), 1.0)], key=key, content=content)

    assert [add("k", b"a"), add("k", b"a"), add("l", b"a")] == [True, False, True]
    with pytest.raises(KeyReused):
        add("k", b"b")
    now[0] += KEY_SECONDS
    with file.transaction():
        file.prune(older_than=float("inf"))
    assert add("k", b"a") is False
    now[0] += 1.0
    with file.transaction():
        file.prune(older_than=float("inf"))
    assert add("k", b"b") is True
    assert told(file) == [("u", "a"), ("u", "a"), ("u", "b")]
    file.close()


def test_events_are_pruned_by_the_time_of_their_arrival(path: Path) -> None:
    now = [0.0]
    file = EventFile(path, clock=lambda: now[0])
    append(file, *[(1, item) for item in range(ROWS_AT_A_TIME + 5)])
    now[0] = 10 * DAY
    append(file, (1, "new"))
    now[0] = 11 * DAY
    with file.transaction():
        assert file.prune(older_than=11 * DAY) == 0
        assert file.prune(older_than=10 * DAY) == ROWS_AT_A_TIME
    assert prune_all(file, older_than=10 * DAY, lock_seconds=1.0) == 5
    assert told(file) == [(1, "new")]
    append(file, (1, "newer"))
    assert told(file) == [(1, "newer")], "ids are not used again"
    file.close()


def test_of_an_erased_user_no_byte_is_left(file: EventFile, path: Path) -> None:
    append(file, *[("someone-secret", f"item {number}") for number in range(500)], ("kept", "a"))
    assert any(b"someone-secret" in part.read_bytes() for part in path.parent.iterdir())
    with file.transaction():
        assert file.erase_user("someone-secret") == 500
    assert file.scrub()
    assert not any(b"someone-secret" in part.read_bytes() for part in path.parent.iterdir())
    assert told(file) == [("kept", "a")]


def test_erasures_are_noticed_once_by_everyone(file: EventFile, path: Path) -> None:
    other = EventFile(path)
    append(file, (7, "a"), ("7", "b"))
    assert [told(file), told(other)] == [[(7, "a"), ("7", "b")]] * 2
    with other.transaction():
        assert other.erase_user(7) == 1
    for each in (file, other):
        assert each.has_erasures()
        assert not each.has_erasures()
        assert told(each) == []
    with other.transaction():
        assert other.erase_user(7) == 0
    assert not file.has_erasures()
    other.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *[("7", ["7", 7]), ("8", ["8"]), ("9", [9]), ("-3", [-3]), ("07", []), ("²", []), ("9" * 30, []), ("--1", [])],
        *[
            (f"{LARGEST}", [LARGEST]),
            (f"{LARGEST + 1}", []),
            (f"{-LARGEST - 1}", [-LARGEST - 1]),
            (f"{-LARGEST - 2}", []),
        ],
    ],
)
def test_a_text_can_mean_a_text_or_an_integer(file: EventFile, text: str, found: Sequence[Id]) -> None:
    append(file, *[(user, "a") for user in (7, "7", "8", 9, -3, LARGEST, -LARGEST - 1)])
    assert file.users_spelt(text) == found


def test_a_copy_is_whole_and_can_be_served(file: EventFile, path: Path, tmp_path: Path) -> None:
    append(file, (1, "a"), (2, "b"))
    other = EventFile(path)
    with other.transaction():
        other.add([StoredEvent(3, "c", 1.0)])
        assert file.copy_to(tmp_path / "copy.sqlite") == 2, "what is not committed is not copied"
    other.close()
    assert file.copy_to(tmp_path / "copy.sqlite") == 3
    copy = EventFile(tmp_path / "copy.sqlite")
    append(copy, (4, "d"))
    assert told(copy) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    copy.close()
    assert [part.name for part in tmp_path.iterdir() if "tmp" in part.name] == []
    with pytest.raises(DataError, match="could not be written"):
        file.copy_to(tmp_path / "missing" / "copy.sqlite")
