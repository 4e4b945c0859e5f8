"""One writer at a time in the folder of a model: whoever reads it, changes it and writes it back holds a lock."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from beamtree.errors import FolderInUse
from beamtree.training.exclusive import exclusive

UPDATE_LOCK = ".update.lock"
"""The lock lies in the folder, because that alone has to be writable; it is no part of the model."""


@contextmanager
def claimed_for_update(folder: Path) -> Iterator[None]:
    """Inside, nobody else updates the model of this folder, which is made where there is none and kept unless empty.

    FolderInUse says who does; ArtefactError where the folder cannot be written to.
    """

    def refuse(holder: str) -> None:
        raise FolderInUse(f"Another update writes to {folder}: {holder}. Wait until it has ended, then try again.")

    is_new = not folder.exists()
    try:
        with exclusive(folder / UPDATE_LOCK, on_wait=refuse, should_stop=lambda: True):
            yield
    finally:
        if is_new:
            with suppress(OSError):  # it holds a model now
                folder.rmdir()
