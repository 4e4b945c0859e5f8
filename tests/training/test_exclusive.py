"""Locks: one process is inside, the next one is told who, and nobody is blocked by the dead."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from beamtree.errors import ArtefactError, InputError, InterruptedTraining
from beamtree.training.exclusive import claimed_folder, exclusive
from tests.training.lock_holder import lock_holder


def never() -> bool:
    return False


def enter(path: Path) -> None:
    with exclusive(path, on_wait=pytest.fail, should_stop=never):
        assert path.exists()


def test_who_waits_can_be_stopped_and_hears_who_is_inside(tmp_path: Path) -> None:
    waits: list[float] = []
    told: list[str] = []
    asked = iter([False, False, True])
    with (
        exclusive(tmp_path / "lock", on_wait=pytest.fail, should_stop=lambda: True),
        pytest.raises(InterruptedTraining, match="waiting for another run"),
        exclusive(tmp_path / "lock", on_wait=told.append, should_stop=lambda: next(asked), sleep=waits.append),
    ):
        pytest.fail("two are inside")
    assert len(waits) == 2
    assert [words.startswith(f"process {os.getpid()} on ") for words in told] == [True]


def test_who_waits_enters_when_the_other_is_killed_and_nothing_is_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock_holder(path) as other:

        def kill(_: float) -> None:
            other.kill()
            other.wait()

        with exclusive(path, on_wait=lambda _: None, should_stop=never, sleep=kill):
            assert str(os.getpid()) in path.read_text()
    assert not path.exists()


def test_a_lock_that_its_holder_removed_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking, the holder ends and a third process makes a lock of its own."""
    path, take = tmp_path / "lock", fcntl.flock
    replaced: list[int] = []

    def flock(stream: int, operation: int) -> None:
        if not replaced:
            path.unlink()
            path.touch()
            replaced.append(path.stat().st_ino)
        take(stream, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with exclusive(path, on_wait=pytest.fail, should_stop=never):
        assert path.stat().st_ino == replaced[0]
        assert str(os.getpid()) in path.read_text(), "the file that is there is the one that is locked"


def test_a_lock_that_was_removed_while_it_was_taken_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, take = tmp_path / "lock", fcntl.flock
    removals = iter([True, True])

    def flock(stream: int, operation: int) -> None:
        if next(removals, False):
            path.unlink()
        take(stream, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with exclusive(path, on_wait=pytest.fail, should_stop=never):
        assert str(os.getpid()) in path.read_text()
        path.unlink()  # whoever removes it meanwhile does not make the end fail


def test_a_folder_belongs_to_one_fit_and_leavings_block_nobody(tmp_path: Path) -> None:
    lock = tmp_path / "model.lock"
    lock.write_text("anything at all")
    with claimed_folder(tmp_path / "model", otherwise="go home"), claimed_folder(tmp_path / "other", otherwise=""):
        with (
            pytest.raises(InputError, match=rf"process {os.getpid()} on .*, since 2.* or go home\."),
            claimed_folder(tmp_path / "model", otherwise="go home"),
        ):
            pytest.fail("two are inside")
        lock.write_text("{")
        with (
            pytest.raises(InputError, match="another process, which holds"),
            claimed_folder(tmp_path / "model", otherwise="go home"),
        ):
            pytest.fail("two are inside")
    assert list(tmp_path.iterdir()) == []


def test_where_there_are_no_locks_it_goes_on_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(_: int, __: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    enter(tmp_path / "lock")
    assert "no locks" in caplog.text


def test_a_disk_that_fails_is_not_taken_for_one_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(_: int, __: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ArtefactError, match="input/output error"):
        enter(tmp_path / "lock")


def test_a_lock_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtefactError, match="Could not write the lock"):
        enter(tmp_path / "file" / "lock")
