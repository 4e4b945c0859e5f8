"""Which model is served: the current one, the previous one, and how a new one replaces it."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from polars.exceptions import PanicException

from beamtree.artefact import MODEL_CARD, manifest_version
from beamtree.catalogue.folder import UPDATE_LOCK
from beamtree.errors import ArtefactError
from beamtree.serving.api_error import ApiError
from beamtree.serving.loaded_model import LoadedModel
from beamtree.storage import MANIFEST, MAX_MANIFEST_BYTES, read_manifest

log = logging.getLogger(__name__)

READ_ATTEMPTS = 3


@dataclass(frozen=True)
class Failure:
    """Why a model was refused, and when."""

    message: str
    at: float


class Witness(Protocol):
    """Is notified of changes; in a server, the metrics."""

    def model_changed(self, version: str) -> None:
        """Another model is served from now on."""

    def reload_failed(self) -> None:
        """A model was refused."""

    def folder_watched(self) -> None:
        """The watcher has checked the folder."""


class Deployment:
    """Serves the model of one folder and replaces it atomically, so that each request sees one model throughout.

    `current` is never empty: a model that cannot be read or fails its trial is refused, and the current one stays.

    load: reads a folder. trial: loads and tries a folder in isolation, and returns the version that it tried. Both
    raise ArtefactError.
    """

    def __init__(
        self,
        directory: Path,
        *,
        load: Callable[[Path], LoadedModel],
        trial: Callable[[Path], str],
        witness: Witness,
    ) -> None:
        self._directory = directory
        self._load = load
        self._trial = trial
        self._witness = witness
        self._reading = threading.Lock()
        self._changing = threading.Lock()
        self._seen = self._look()
        self.current = load(directory)
        self.previous: LoadedModel | None = None
        self.last_failure: Failure | None = None
        witness.model_changed(self.current.version)

    def differs_from_folder(self) -> bool:
        """Whether the folder holds another model than the one that is served, or one that was refused."""
        try:
            in_folder = manifest_version(read_manifest(self._directory))
        except ArtefactError:
            return True
        return self.last_failure is not None or in_folder != self.current.version

    def reload(self) -> bool:
        """Read the folder and serve its model; False where it is served already.

        ArtefactError where the model is refused, whatever the reason.
        """
        with self._reading:
            try:
                fresh = self._read()
            except (Exception, PanicException) as error:
                reason = str(error) if isinstance(error, ArtefactError) else f"{type(error).__name__}: {error}"
                message = reason.replace(str(self._directory), "the model folder")
                self.last_failure = Failure(message, time.time())
                self._witness.reload_failed()
                log.error(
                    "model refused",
                    extra={"reason": message, "serving": self.current.version},
                    exc_info=None if isinstance(error, ArtefactError) else error,
                )
                raise ArtefactError(message) from error
            self.last_failure = None
            return self._serve(fresh)

    def change(self, make: Callable[[LoadedModel], LoadedModel]) -> bool:
        """Serve what `make` returns for the current model, having written it to the folder.

        The caller keeps others from writing to the folder in the meantime. A newer model in the folder is loaded first.
        False where nothing has changed. ArtefactError as in `reload`; 409 after a rollback, because the folder holds
        what was rolled back; an exception of `make` is passed on, and nothing has changed.
        """
        if self.differs_from_folder():
            self._refuse_after_rollback()
            self.reload()
        with self._reading:
            fresh = make(self.current)
            self._seen = self._look()
            return self._serve(fresh)

    def _serve(self, fresh: LoadedModel) -> bool:
        """Put a model in service; False where it is served already."""
        fresh.describe()
        with self._changing:
            if fresh.version == self.current.version:
                return False
            self.previous, self.current = self.current, fresh
            self._announce()
            return True

    def rollback(self) -> None:
        """Serve the previous model again; the current one becomes the previous one."""
        with self._changing:
            if self.previous is None:
                raise ApiError(409, "nothing_to_roll_back", "No model was served before the current one.")
            self.previous, self.current = self.current, self.previous
            self._announce()

    def reload_if_changed(self) -> None:
        """Reload if the folder has changed since the last check; a refused model is recorded, nothing is raised."""
        present = self._look()
        if present != self._seen:
            self._seen = present
            self.reload_or_record()

    def reload_or_record(self) -> None:
        """Reload; a refused model is recorded, nothing is raised."""
        with suppress(ArtefactError):
            self.reload()

    def watch(self, stop: threading.Event, *, seconds: float) -> None:
        """Check the folder periodically until `stop` is set."""
        while not stop.wait(seconds):
            try:
                self.reload_if_changed()
            except BaseException:  # the watcher must not end unnoticed
                log.exception("watching the model folder failed")
            self._witness.folder_watched()

    def _read(self) -> LoadedModel:
        """Try the model in the folder, then load it; again if it was replaced in the meantime.

        The version is a hash of all files: what is loaded is what was tried.
        """
        for _ in range(READ_ATTEMPTS):
            before = self._look()
            try:
                tried = self._trial(self._directory)
                if tried == self.current.version:
                    return self.current
                fresh = self._load(self._directory)
                if fresh.version == tried:
                    return fresh
            except ArtefactError:
                if self._look() == before:
                    raise
        raise ArtefactError(
            f"{self._directory} was changed {READ_ATTEMPTS} times while it was read. Save or copy the model once, then "
            "reload it."
        )

    def _refuse_after_rollback(self) -> None:
        if self.previous is not None and manifest_version(read_manifest(self._directory)) == self.previous.version:
            raise ApiError(
                409,
                "rolled_back",
                "The model folder holds the model that was rolled back, not the one that is served. Reload it, or save "
                "the served one there, then change its items.",
            )

    def _announce(self) -> None:
        self._witness.model_changed(self.current.version)
        before = self.previous.version if self.previous else None
        log.info("model changed", extra={"serving": self.current.version, "previous": before})

    def _look(self) -> str:
        """A fingerprint of the manifest's content and of the sizes and dates of all files.

        The model card and the lock of other writers are no part of the model.
        """
        digest = hashlib.sha256()
        try:
            if not (self._directory / MANIFEST).is_fifo():  # opening a pipe waits for whoever writes to it
                with (self._directory / MANIFEST).open("rb") as manifest:
                    digest.update(manifest.read(MAX_MANIFEST_BYTES))
            for entry in sorted(self._directory.iterdir()):
                if entry.name in (MODEL_CARD, UPDATE_LOCK):
                    continue
                status = entry.stat()
                digest.update(f"{entry.name} {status.st_size} {status.st_mtime_ns};".encode())
        except OSError as error:
            digest.update(f"{type(error).__name__}".encode())
        return digest.hexdigest()
