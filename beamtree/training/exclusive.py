"""One process at a time: a lock file that the operating system releases when its holder ends, however it ends."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from beamtree.errors import InterruptedTraining

SECONDS_BETWEEN_ATTEMPTS = 0.5


@contextmanager
def exclusive(
    path: Path,
    *,
    on_wait: Callable[[], None],
    should_stop: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Inside, nobody else is inside with the same path, on this machine or where the file system passes locks on.

    on_wait: called once if somebody is. should_stop: asked while waiting; a yes raises InterruptedTraining.
    The empty file stays where it is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="ascii") as stream:
        if not _take(stream):
            on_wait()
            while not _take(stream):
                if should_stop():
                    raise InterruptedTraining(f"Stopped while waiting for another run, which holds {path}.")
                sleep(SECONDS_BETWEEN_ATTEMPTS)
        yield


def _take(stream: TextIO) -> bool:
    """Take the lock if it is free, and say so; closing the file gives it back."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
