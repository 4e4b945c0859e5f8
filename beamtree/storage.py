"""Directories that change as a whole: data files named by their content, and one manifest that names them.

A bundle is written file by file under names that carry the hash of their content, each flushed to disk; then
`manifest.json` is replaced in one step. Whoever reads, at any instant, finds the old bundle or the new one, whole.
"""

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import save_file

from beamtree.errors import ArtefactError
from beamtree.machine import available_memory
from beamtree.types import AnyArray

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 2**23
_FILE_NAME = re.compile(r"\w[\w.-]{0,254}", re.ASCII)

Content = npt.NDArray[np.uint8]
"""Bytes of a file, (n,)."""
Writer = Callable[[Path], object]


def write_bundle(directory: Path, manifest: Mapping[str, Any], *, files: Mapping[str, Writer]) -> None:
    """Replace the bundle in `directory` by the given files and manifest entries, all or nothing.

    files: name such as "weights.safetensors" -> a function that writes that file to the path it is given.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        entries = {name: _write_by_content(directory, name, writer) for name, writer in files.items()}
        _flush_to_disk(directory)
        text = json.dumps({**manifest, "files": entries}, indent=2, sort_keys=True) + "\n"
        replace_text(directory / MANIFEST, text)
    except OSError as error:
        raise ArtefactError(
            f"Could not write to {directory}: {error.strerror or error}. Anything saved there before is untouched. "
            "Check that the folder is writable and the disk has room, then save again."
        ) from error
    _remove_leavings(directory, entries)


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a bundle; ArtefactError when there is none or it is not one."""
    path = directory / MANIFEST
    try:
        if path.is_fifo():
            raise ValueError("a pipe, which would be waited for")
        with path.open("rb") as stream:
            text = stream.read(MAX_MANIFEST_BYTES + 1)
        if len(text) > MAX_MANIFEST_BYTES:
            raise ValueError(f"more than {MAX_MANIFEST_BYTES:,} bytes")
        manifest = json.loads(text.decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArtefactError(
            f"{directory} holds no saved bundle: {MANIFEST} is missing. Give the folder that was saved to."
        ) from error
    except (ValueError, RecursionError, OSError) as error:
        raise ArtefactError(
            f"{path} cannot be read as JSON ({error}). Save it again or restore it from a copy."
        ) from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise ArtefactError(
            f"{path} is not a manifest: the entry 'files' is missing. Give a folder that beamtree saved."
        )
    return manifest


def check_files(directory: Path, manifest: Mapping[str, Any]) -> None:
    """ArtefactError where a listed file is missing or of another size, or where all of them do not fit in memory.

    Looks at sizes alone: cheap for a folder that is still being copied, and nothing is read that could not be held.
    """
    total = sum(_find_file(directory, manifest, name).bytes for name in manifest["files"])
    available = available_memory()
    if total > available:
        raise ArtefactError(
            f"{directory} does not fit in memory: its files have {total:,} bytes, {available:,} are available. Use a "
            "machine or a container with more memory, or fit a smaller model."
        )


def read_file(directory: Path, manifest: Mapping[str, Any], name: str) -> Content:
    """The content of one file of a bundle, read into memory once: exactly these bytes have the recorded hash.

    Nobody who overwrites or truncates the file later can change what is returned. ArtefactError where the file is
    missing, damaged or too large for the memory that is left.
    """
    file = _find_file(directory, manifest, name)
    try:
        content = np.empty(file.bytes, dtype=np.uint8)
        with file.path.open("rb", buffering=0) as stream:
            view = content.data
            while view and (count := stream.readinto(view)):
                view = view[count:]
    except (OSError, MemoryError) as error:
        raise ArtefactError(f"{file.path} cannot be read ({error}). Copy the folder again, whole.") from error
    if view or hashlib.sha256(content.data).hexdigest() != file.sha256:
        raise _damaged(file.path)
    content.setflags(write=False)
    return content


def read_arrays(directory: Path, manifest: Mapping[str, Any], name: str) -> dict[str, AnyArray]:
    """The arrays of a safetensors file of a bundle: read-only, in memory, checked as `read_file` does."""
    content = read_file(directory, manifest, name)
    try:
        return parse_arrays(content)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        path = directory / str(manifest["files"][name]["name"])
        raise ArtefactError(f"{path} is not a safetensors file ({error}). Copy the folder again, whole.") from error


def replace_file(path: Path, writer: Writer) -> None:
    """Write a file so that at any instant either the old or the new content is there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        writer(beside)
        _flush_to_disk(beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    _flush_to_disk(path.parent)


def replace_text(path: Path, text: str) -> None:
    """Write a text file in the way of `replace_file`."""
    replace_file(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def write_arrays(arrays: Mapping[str, AnyArray]) -> Writer:
    """A writer of one safetensors file for `write_bundle`."""
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}

    def write(path: Path) -> None:
        try:
            save_file(contiguous, path)
        except SafetensorError as error:  # how safetensors reports a full disk or a folder that refuses
            raise OSError(str(error)) from error

    return write


def parse_arrays(content: Content) -> dict[str, AnyArray]:
    """The arrays of a safetensors file: views of its content, copies where a view would be misaligned.

    ValueError, KeyError or TypeError for anything else: arrays have to fill the file one after another.
    """
    header_bytes = int.from_bytes(content[:8].tobytes(), "little")
    if len(content) < 8 or header_bytes > len(content) - 8:
        raise ValueError(f"a header of {header_bytes} bytes does not fit into the file")
    header = json.loads(content[8 : 8 + header_bytes].tobytes())
    if not isinstance(header, dict):
        raise ValueError("the header is not a table of arrays")
    header.pop("__metadata__", None)
    data = content[8 + header_bytes :]
    arrays = {name: _array(name, spec, data) for name, spec in header.items()}
    filled = 0
    for first, end in sorted(tuple(spec["data_offsets"]) for spec in header.values()):
        if first != filled:
            raise ValueError(f"expected an array to begin at byte {filled} of the data, got {first}")
        filled = end
    if filled != len(data):
        raise ValueError(f"the arrays have {filled} bytes, the file has {len(data)}")
    return arrays


def file_sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}


def _array(name: str, spec: Mapping[str, Any], data: Content) -> AnyArray:
    dtype, shape, (first, end) = np.dtype(_DTYPES[spec["dtype"]]), tuple(spec["shape"]), spec["data_offsets"]
    if any(type(number) is not int or number < 0 for number in (*shape, first, end)):
        raise ValueError(f"{name!r}: expected sizes and offsets from 0, got {shape} at {first!r} to {end!r}")
    if not first <= end <= len(data) or end - first != math.prod(shape) * dtype.itemsize:
        raise ValueError(
            f"{name!r}: {first} to {end} of {len(data)} bytes do not hold {spec['dtype']} of shape {shape}"
        )
    array = data[first:end].view(dtype).reshape(shape)
    if not array.flags.aligned:
        array = array.copy()
        array.setflags(write=False)
    return array


@dataclass(frozen=True)
class _File:
    """A file that a manifest lists, and what the manifest says of it."""

    path: Path
    bytes: int
    sha256: str


def _find_file(directory: Path, manifest: Mapping[str, Any], name: str) -> _File:
    """One file of a bundle, after checking that it lies in the folder and has the recorded size."""
    entry = manifest["files"].get(name)
    if not isinstance(entry, dict) or not {"name", "bytes", "sha256"} <= entry.keys():
        raise ArtefactError(
            f"{directory / MANIFEST} does not list {name}: the folder is incomplete. Save the model again."
        )
    stored_name = entry["name"]
    if not isinstance(stored_name, str) or not _FILE_NAME.fullmatch(stored_name):
        raise ArtefactError(f"{directory / MANIFEST} points outside its folder ({stored_name!r}): refused.")
    path = directory / stored_name
    try:
        if not path.is_file():
            raise ArtefactError(f"{path} is missing although the manifest lists it. Copy the folder again, whole.")
        size = path.stat().st_size
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read ({error}). Copy the folder again, whole.") from error
    if type(entry["bytes"]) is not int or size != entry["bytes"]:
        raise _damaged(path)
    return _File(path, size, str(entry["sha256"]))


def _damaged(path: Path) -> ArtefactError:
    return ArtefactError(f"{path} is damaged: size or checksum differ from the manifest. Copy the folder again, whole.")


def _write_by_content(directory: Path, name: str, writer: Writer) -> dict[str, Any]:
    # A folder of its own, because a writer may make temporary files beside the one it was asked for.
    workshop = directory / f".writing.{os.getpid()}.tmp"
    try:
        workshop.mkdir(exist_ok=True)
        fresh = workshop / name
        fresh.touch()
        usual_mode = fresh.stat().st_mode
        writer(fresh)
        fresh.chmod(usual_mode)  # safetensors makes files that nobody else may read
        digest = file_sha256(fresh)
        stem, _, suffix = name.partition(".")
        stored_name = f"{stem}-{digest[:16]}.{suffix}"
        _flush_to_disk(fresh)
        size = fresh.stat().st_size
        os.replace(fresh, directory / stored_name)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return {"name": stored_name, "bytes": size, "sha256": digest}


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_leavings(directory: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Delete what earlier bundles and crashed writes of these very files left behind; all else in the folder stays."""
    current = {entry["name"] for entry in entries.values()}
    patterns = [rf"\.(writing|{re.escape(MANIFEST)})\.\d+\.tmp"]
    for name in entries:
        stem, _, suffix = name.partition(".")
        patterns.append(rf"{re.escape(stem)}-[0-9a-f]{{16}}\.{re.escape(suffix)}")
    for path in directory.iterdir():
        if path.name not in current and any(re.fullmatch(pattern, path.name) for pattern in patterns):
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
