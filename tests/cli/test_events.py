"""beamtree events: copies, old events, one user."""

import time
from pathlib import Path

import pytest

from beamtree.data.vocabulary import Id
from beamtree.serving.event_file import DAY, EventFile, StoredEvent
from tests.cli.beamtree_command import Command


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Events of 7, of '7' and of someone, the first of which arrived more than two days ago."""
    now = [time.time() - 2.5 * DAY]
    file = EventFile(tmp_path / "events.sqlite", clock=lambda: now[0])
    for user, item in ((7, "a"), ("7", "b"), ("someone", "c"), ("someone", "d")):
        with file.transaction():
            file.add([StoredEvent(user, item, 1.0)])
        now[0] = time.time()
    file.close()
    return tmp_path / "events.sqlite"


def items(path: Path) -> list[Id]:
    file = EventFile.existing(path)
    found = [event.item for events in file.read_new() for event in events]
    file.close()
    return found


def test_a_copy_holds_all_events(beamtree: Command, path: Path, tmp_path: Path) -> None:
    done = beamtree("events", "backup", str(path), str(tmp_path / "copy.sqlite"))
    assert done.code == 0
    assert "4 events" in done.out
    assert items(tmp_path / "copy.sqlite") == ["a", "b", "c", "d"]
    itself = beamtree("events", "backup", str(path), str(path))
    assert (itself.code, "the file of events itself" in itself.message) == (1, True)
    missing = beamtree("events", "backup", str(tmp_path / "missing"), str(tmp_path / "copy.sqlite"))
    assert (missing.code, "no such file of events" in missing.message) == (1, True)
    assert not (tmp_path / "missing").exists()


def test_old_events_are_pruned(beamtree: Command, path: Path) -> None:
    assert "Deleted 0 events" in beamtree("events", "prune", str(path), "--days", "3").out
    assert "Deleted 1 events" in beamtree("events", "prune", str(path), "--days", "2").out
    assert items(path) == ["b", "c", "d"]


def test_a_user_is_forgotten_and_one_that_could_be_two_is_asked_for(beamtree: Command, path: Path) -> None:
    assert "Deleted 2 events" in beamtree("events", "forget", str(path), "someone").out
    both = beamtree("events", "forget", str(path), "7")
    assert (both.code, "Add --text or --integer" in both.message) == (1, True)
    assert items(path) == ["a", "b"]
    assert "Deleted 1 events" in beamtree("events", "forget", str(path), "7", "--integer").out
    assert items(path) == ["b"]
    assert "Deleted 0 events" in beamtree("events", "forget", str(path), "8").out
    assert "Deleted 1 events" in beamtree("events", "forget", str(path), "7").out
    assert items(path) == []
