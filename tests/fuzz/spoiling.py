"""Models spoilt at random, but with a mind for their structure: what a careless tool or a hostile person could write.

A model is a folder as a dictionary of its files. Each way of spoiling changes one thing and keeps sizes and checksums
right, so that the loader cannot stop at them.
"""

import copy
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st
from safetensors.numpy import load, save

from beamtree.artefact import REQUEST_FEATURES
from beamtree.storage import MANIFEST

Files = dict[str, bytes]
Draw = Callable[[st.SearchStrategy[Any]], Any]

DATA_FILES = ("weights.safetensors", "index.safetensors", "items.parquet")
HOSTILE_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 7, 2**31 - 1, 2**31, 2**62, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308),
    *(float("nan"), float("inf"), "", "2", "\0", "\ud800", "../x", "x" * 5000, [], [[]], {}, {"a": {"b": []}}),
    *([0], [-1, -1], [2**62, 4], [1, 1, 1], ["1"], [None]),
]
HOSTILE_NUMBERS = [0.0, 1.0, -1.0, 1e-45, 6e4, 3e38, -3e38, float("nan"), float("inf"), 2.0**31, -(2.0**63)]
NO_JSON = [
    b"",
    b"{",
    b"\xff\xfe{}",
    b"\0" * 9,
    b"null x",
    b"[" * 99_999,
    b'{"a":' * 99_999,
    b"1" * 9_999,
    b"-" + b"9" * 400,
]
DTYPES = [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8, np.bool_]


def read_model(directory: Path) -> Files:
    """The files of a folder."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def write_model(files: Files, directory: Path) -> None:
    """Write files to a folder, and nothing else is in it then."""
    directory.mkdir(exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    for name, content in files.items():
        (directory / name).write_bytes(content)


def spoil(files: Files, draw: Draw) -> Files:
    """The model with one to three faults."""
    for _ in range(draw(st.integers(1, 3))):
        files = draw(st.sampled_from(WAYS))(files, draw)
    return files


def spoil_folder(files: Files, draw: Draw) -> Files:
    """A file that is missing, or a manifest that is no JSON, is cut off, or is nested without end."""
    name = draw(st.sampled_from(sorted(files) or [MANIFEST]))
    if name != MANIFEST or not draw(st.integers(0, 3)):
        return {other: content for other, content in files.items() if other != name}
    manifest = files.get(MANIFEST, b"")
    return files | {MANIFEST: draw(st.sampled_from([*NO_JSON, manifest[: len(manifest) // 2], manifest + b"]"]))}


def spoil_manifest(files: Files, draw: Draw) -> Files:
    """Another value, or none, somewhere in the manifest."""
    return files | {MANIFEST: json.dumps(_changed(_manifest(files), draw)).encode()}


def spoil_request_features(files: Files, draw: Draw) -> Files:
    """The same in what a model remembers of the columns of users and contexts, if it reads any."""
    try:
        stated = json.loads(_content(files, REQUEST_FEATURES))
    except (ValueError, RecursionError):
        return files
    encoded = json.dumps(_changed(stated, draw)).encode()
    if not draw(st.integers(0, 19)):
        encoded = draw(st.sampled_from(NO_JSON))
    return _replaced(files, REQUEST_FEATURES, encoded)


def spoil_header(files: Files, draw: Draw) -> Files:
    """The same in the header of a file of arrays."""
    name = draw(st.sampled_from(DATA_FILES[:2]))
    content = _content(files, name)
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length])
    except (ValueError, RecursionError):
        return files
    encoded = json.dumps(_changed(header, draw)).encode() + draw(st.integers(0, 9)) * b" "
    if not draw(st.integers(0, 19)):
        encoded = draw(st.sampled_from(NO_JSON))
    return _replaced(files, name, len(encoded).to_bytes(8, "little") + encoded + content[8 + length :])


def spoil_arrays(files: Files, draw: Draw) -> Files:
    """An array of another shape, type, length or content, or under another name."""
    name = draw(st.sampled_from(DATA_FILES[:2]))
    try:
        arrays = load(_content(files, name))
    except Exception:  # it is spoilt already
        return files
    if not arrays:
        return files
    victim = draw(st.sampled_from(sorted(arrays)))
    array = arrays.pop(victim)
    change = draw(
        st.sampled_from(["drop", "rename", "flatten", "deepen", "transpose", "cut", "repeat", "type", "fill"])
    )
    if change == "rename":
        arrays[draw(st.sampled_from(["x", "attention/x", "/", "taste/table", "tower/encoder.layers.9.x"]))] = array
    elif change != "drop":
        arrays[victim] = np.ascontiguousarray(_changed_array(array, change, draw))
    return _replaced(files, name, save(arrays))


def spoil_items(files: Files, draw: Draw) -> Files:
    """Another item table."""
    try:
        table = pl.read_parquet(_content(files, "items.parquet"))
    except (Exception, pl.exceptions.PanicException):  # it is spoilt already
        return files
    column = draw(st.sampled_from(table.columns or ["item_id"]))
    change = draw(st.sampled_from(["drop", "null", "repeat", "cut", "double", "type", "one"]))
    try:
        if change == "drop":
            table = table.drop(column)
        elif change == "cut":
            table = table.head(draw(st.integers(0, 3)))
        elif change == "double":
            table = pl.concat([table, table])
        elif change == "repeat":
            table = table.with_columns(pl.col(column).first())
        elif change == "one":
            table = table.with_columns(pl.col(column).implode().alias(column))
        else:
            dtypes = [pl.Null] if change == "null" else [pl.Int8, pl.UInt64, pl.Float64, pl.String, pl.Date, pl.Binary]
            table = table.with_columns(pl.col(column).cast(draw(st.sampled_from(dtypes)), strict=False))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):  # no such change of this column
        return files
    stream = io.BytesIO()
    table.write_parquet(stream)
    return _replaced(files, "items.parquet", stream.getvalue())


def spoil_bytes(files: Files, draw: Draw) -> Files:
    """Bytes that are other ones, too many or too few."""
    name = draw(st.sampled_from(DATA_FILES))
    content = _content(files, name)
    at = draw(st.integers(0, max(0, len(content) - 1)))
    middle = draw(st.sampled_from([b"", b"\0", b"\xff", b"\xff" * 8, b"\0" * 64]))
    return _replaced(files, name, content[:at] + middle + content[at + draw(st.integers(0, 9)) :])


WAYS = [spoil_folder, spoil_manifest, spoil_request_features, spoil_header, spoil_arrays, spoil_items, spoil_bytes]


def _changed(value: Any, draw: Draw) -> Any:
    """A JSON value with another one at some place in it."""
    changed = copy.deepcopy(value)
    place: Any = changed
    while True:
        keys: list[Any] = []
        if isinstance(place, dict | list):
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys)) if keys else None
        if key is None:
            return draw(st.sampled_from(HOSTILE_VALUES))
        if isinstance(place[key], dict | list) and place[key] and draw(st.integers(0, 9)):
            place = place[key]
            continue
        if draw(st.integers(0, 4)):
            place[key] = draw(st.sampled_from(HOSTILE_VALUES))
        else:
            del place[key]
        return changed


def _changed_array(array: np.ndarray[Any, Any], change: str, draw: Draw) -> np.ndarray[Any, Any]:
    if change == "flatten":
        return array.reshape(-1)
    if change == "deepen":
        return array[None]
    if change == "transpose":
        return array.T
    if change == "cut":
        return array.reshape(-1)[: draw(st.integers(0, array.size))] if array.ndim < 2 else array[:-1]
    if change == "repeat":
        return np.concatenate([np.atleast_1d(array)] * 2)
    with np.errstate(all="ignore"):
        if change == "type":
            return array.astype(draw(st.sampled_from(DTYPES)))
        filled = np.array(array)
        flat = filled.reshape(-1)
        if flat.size:
            flat[draw(st.integers(0, flat.size - 1)) :: draw(st.integers(1, 5))] = np.array(
                draw(st.sampled_from(HOSTILE_NUMBERS))
            ).astype(filled.dtype)
        return filled


def _manifest(files: Files) -> Any:
    """What the manifest holds; None where it is spoilt already."""
    try:
        return json.loads(files[MANIFEST])
    except (KeyError, ValueError, RecursionError):
        return None


def _entry(files: Files, name: str) -> dict[str, Any] | None:
    """What the manifest says of a file; None where it is spoilt already."""
    manifest = _manifest(files)
    entries = manifest.get("files") if isinstance(manifest, dict) else None
    entry = entries.get(name) if isinstance(entries, dict) else None
    known = isinstance(entry, dict) and isinstance(entry.get("name"), str) and entry["name"] in files
    return entry if known else None


def _content(files: Files, name: str) -> bytes:
    entry = _entry(files, name)
    return b"" if entry is None else files[entry["name"]]


def _replaced(files: Files, name: str, content: bytes) -> Files:
    entry = _entry(files, name)
    if entry is None:
        return files
    manifest = _manifest(files)
    manifest["files"][name] = entry | {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return files | {entry["name"]: content, MANIFEST: json.dumps(manifest).encode()}
