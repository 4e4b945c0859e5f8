"""Directories that change as a whole: data files named by their content, and one manifest that names them.

A bundle is written file by file under names that carry the hash of their content, each flushed to disk; then
`manifest.json` is replaced in one step. Whoever reads, at any instant, finds the old bundle or the new one, whole.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import save_file

from beamtree.errors import ArtefactError

MANIFEST = "manifest.json"

AnyArray = npt.NDArray[Any]
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
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArtefactError(
            f"{directory} holds no saved bundle: {MANIFEST} is missing. Give the folder that was saved to."
        ) from error
    except (ValueError, OSError) as error:
        raise ArtefactError(
            f"{path} cannot be read as JSON ({error}). Save it again or restore it from a copy."
        ) from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise ArtefactError(
            f"{path} is not a manifest: the entry 'files' is missing. Give a folder that beamtree saved."
        )
    return manifest


def bundle_file(directory: Path, manifest: Mapping[str, Any], name: str, *, verify: bool = True) -> Path:
    """Path of one file of a bundle, after checking that it lies in the folder and has the recorded size and hash."""
    entry = manifest["files"].get(name)
    if not isinstance(entry, dict) or not {"name", "bytes", "sha256"} <= entry.keys():
        raise ArtefactError(
            f"{directory / MANIFEST} does not list {name}: the folder is incomplete. Save the model again."
        )
    stored_name = str(entry["name"])
    if Path(stored_name).name != stored_name:
        raise ArtefactError(f"{directory / MANIFEST} points outside its folder ({stored_name!r}): refused.")
    path = directory / stored_name
    if not path.is_file():
        raise ArtefactError(f"{path} is missing although the manifest lists it. Copy the folder again, whole.")
    if path.stat().st_size != entry["bytes"] or (verify and file_sha256(path) != entry["sha256"]):
        raise ArtefactError(
            f"{path} is damaged: size or checksum differ from the manifest. Copy the folder again, whole."
        )
    return path


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


def map_arrays(path: Path) -> dict[str, AnyArray]:
    """The arrays of a safetensors file, memory-mapped and read-only."""
    try:
        with path.open("rb") as stream:
            header_bytes = int.from_bytes(stream.read(8), "little")
            if header_bytes > path.stat().st_size:
                raise ValueError(f"a header of {header_bytes} bytes does not fit into the file")
            header = json.loads(stream.read(header_bytes))
        if not isinstance(header, dict):
            raise ValueError("the header is not a table of arrays")
        header.pop("__metadata__", None)
        data_start = 8 + header_bytes
        return {name: _map_array(path, spec, data_start=data_start) for name, spec in header.items()}
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ArtefactError(f"{path} is not a safetensors file ({error}). Copy the folder again, whole.") from error


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


def _map_array(path: Path, spec: Mapping[str, Any], *, data_start: int) -> AnyArray:
    dtype, shape = np.dtype(_DTYPES[spec["dtype"]]), tuple(spec["shape"])
    if 0 in shape:
        return np.empty(shape, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=data_start + spec["data_offsets"][0], shape=shape)


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
