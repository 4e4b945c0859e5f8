"""Lock files that the operating system releases when their process ends, even if it is killed.

A lock file names its holder. A killed process leaves an unlocked file behind, which blocks no other process.
"""

import errno
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from beamtree.errors import ArtefactError, InputError, InterruptedTraining

SECONDS_BETWEEN_ATTEMPTS = 0.5
_HAS_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)

log = logging.getLogger(__name__)


@contextmanager
def exclusive(
    path: Path,
    *,
    on_wait: Callable[[str], None],
    should_stop: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the lock of a path, on this machine and wherever the file system shares locks.

    on_wait: called once with a description of the holder if the lock is taken; it may raise instead of waiting.
    should_stop: polled while waiting; True raises InterruptedTraining. The file is removed at the end. ArtefactError if
    it cannot be written.
    """
    held = _open_and_take(path)
    if held is None:
        on_wait(_describe_holder(path))
        while (held := _open_and_take(path)) is None:
            if should_stop():
                raise InterruptedTraining(f"Stopped while waiting for another run, which holds {path}.")
            sleep(SECONDS_BETWEEN_ATTEMPTS)
    with held:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def claimed_folder(folder: Path, *, otherwise: str) -> Iterator[None]:
    """Lock a folder against other fits; InputError if one has it, with its name and the remedy `otherwise`."""

    def refuse(holder: str) -> None:
        raise InputError(
            f"Another fit writes to {folder}: {holder}. Wait until it has ended, stop it (it can be resumed), or "
            f"{otherwise}."
        )

    with exclusive(folder.with_name(f"{folder.name}.lock"), on_wait=refuse, should_stop=lambda: True):
        yield


def _open_and_take(path: Path) -> TextIO | None:
    """The open file, locked and naming this process; None if another process has the lock."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with ExitStack() as opened:
                stream = opened.enter_context(path.open("a", encoding="utf-8"))
                if not _take(stream):
                    return None
                if _is_at(stream, path):  # else its holder removed it in between, and the next one would not find it
                    _write_holder(stream)
                    opened.pop_all()
                    return stream
    except OSError as error:
        raise ArtefactError(
            f"Could not write the lock {path}: {error.strerror or error}. Check that the folder is writable and the "
            "disk has room."
        ) from error


def _take(stream: TextIO) -> bool:
    """Whether the lock was free and is taken now; closing the file releases it."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _HAS_NO_LOCKS:
            raise
        log.warning("%s: this file system has no locks; see to it that no other run uses the folder", stream.name)
    return True


def _is_at(stream: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _write_holder(stream: TextIO) -> None:
    stream.truncate(0)
    since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": since}, stream)
    stream.flush()


def _describe_holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"another process, which holds {path}"
