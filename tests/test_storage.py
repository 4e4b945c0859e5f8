import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from beamtree.errors import ArtefactError
from beamtree.storage import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    Writer,
    check_files,
    file_sha256,
    parse_arrays,
    read_arrays,
    read_file,
    read_manifest,
    write_arrays,
    write_bundle,
)
from beamtree.types import AnyArray


def text(content: str) -> Writer:
    return lambda path: path.write_text(content)


def failing(path: Path) -> None:
    """A writer that has written half of its file when the disk gives up."""
    path.write_text("half of")
    raise OSError(28, "No space left on device")


def content_of(directory: Path, name: str) -> str:
    return read_file(directory, read_manifest(directory), name).tobytes().decode()


def read_a(directory: Path, manifest: dict[str, Any]) -> None:
    read_file(directory, manifest, "a.txt")


def path_of(directory: Path, name: str) -> Path:
    return directory / str(read_manifest(directory)["files"][name]["name"])


def stored(directory: Path, writer: Writer) -> dict[str, AnyArray]:
    """The arrays of a file that went through a bundle."""
    write_bundle(directory, {}, files={"x.safetensors": writer})
    return read_arrays(directory, read_manifest(directory), "x.safetensors")


def listing(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A folder with the bundle {a.txt: "old a", b.txt: "old b", generation: 1}."""
    directory = tmp_path / "deep" / "bundle"
    write_bundle(directory, {"generation": 1}, files={"a.txt": text("old a"), "b.txt": text("old b")})
    return directory


def test_a_bundle_comes_back(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    assert manifest["generation"] == 1
    assert (content_of(bundle, "a.txt"), content_of(bundle, "b.txt")) == ("old a", "old b")
    assert manifest["files"]["a.txt"]["bytes"] == 5
    assert manifest["files"]["a.txt"]["sha256"] == file_sha256(path_of(bundle, "a.txt"))


def test_a_bundle_is_replaced_whole(bundle: Path) -> None:
    write_bundle(bundle, {"generation": 2}, files={"a.txt": text("new a"), "b.txt": text("old b")})
    manifest = read_manifest(bundle)
    assert manifest["generation"] == 2
    assert (content_of(bundle, "a.txt"), content_of(bundle, "b.txt")) == ("new a", "old b")
    assert listing(bundle) == {MANIFEST, *(entry["name"] for entry in manifest["files"].values())}


def test_files_are_as_readable_as_any_other(tmp_path: Path) -> None:
    """A service that runs under another account must be able to read a saved model."""
    write_bundle(tmp_path / "bundle", {}, files={"a.safetensors": write_arrays({"x": np.zeros(3)})})
    (tmp_path / "any").touch()
    modes = {path.stat().st_mode for path in (tmp_path / "bundle").iterdir()}
    assert modes == {(tmp_path / "any").stat().st_mode}


def test_files_of_others_in_the_folder_survive(bundle: Path) -> None:
    theirs = {"notes.md", "a.txt", "a-notes.txt", "a-0123456789ABCDEF.txt", "c-0123456789abcdef.txt", ".hidden.tmp"}
    for name in theirs:
        (bundle / name).write_text("mine")
    (bundle / "sub").mkdir()
    write_bundle(bundle, {}, files={"a.txt": text("new a"), "b.txt": text("new b")})
    assert theirs | {"sub"} <= listing(bundle)
    assert len(listing(bundle)) == len(theirs) + 1 + 3


def test_a_write_that_fails_leaves_the_old_bundle(bundle: Path) -> None:
    before = listing(bundle)
    with pytest.raises(ArtefactError, match=r"Could not write to .*No space left.*untouched"):
        write_bundle(bundle, {"generation": 2}, files={"a.txt": text("new a"), "b.txt": failing})
    assert read_manifest(bundle)["generation"] == 1
    assert (content_of(bundle, "a.txt"), content_of(bundle, "b.txt")) == ("old a", "old b")
    left_over = listing(bundle) - before
    assert len(left_over) == 1, "the finished new file, under a name of its own"
    write_bundle(bundle, {"generation": 3}, files={"a.txt": text("newer a"), "b.txt": text("new b")})
    assert not left_over & listing(bundle), "the next write sweeps up"


def test_an_error_of_the_writer_itself_also_leaves_the_old_bundle(bundle: Path) -> None:
    def broken(_: Path) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_bundle(bundle, {"generation": 2}, files={"a.txt": text("new a"), "b.txt": broken})
    assert read_manifest(bundle)["generation"] == 1
    assert content_of(bundle, "a.txt") == "old a"


@pytest.mark.parametrize("victim", ["file", "manifest"])
def test_a_process_killed_while_writing_leaves_the_old_bundle_and_nothing_for_ever(bundle: Path, victim: str) -> None:
    """The child dies by SIGKILL inside a writer that has made a stray file, or just before the manifest is swapped."""
    program = f"""
import os, signal, sys
from pathlib import Path
from beamtree import storage

def die(path=None, *rest):
    if path is not None:
        Path(path).write_text("half")
        (Path(path).parent / ".tmpXyZ").write_text("a temporary file of the writer")
    os.kill(os.getpid(), signal.SIGKILL)

if {victim!r} == "manifest":
    replace, moves = os.replace, []
    def count(source, target):
        if Path(target).name == "manifest.json":
            die()
        replace(source, target)
    os.replace = count
    writers = {{"a.txt": lambda path: path.write_text("new a"), "b.txt": lambda path: path.write_text("new b")}}
else:
    writers = {{"a.txt": lambda path: path.write_text("new a"), "b.txt": die}}
storage.write_bundle(Path(sys.argv[1]), {{"generation": 2}}, files=writers)
"""
    child = subprocess.run([sys.executable, "-c", program, str(bundle)], cwd=Path(__file__).parents[1], check=False)
    assert child.returncode == -signal.SIGKILL
    assert read_manifest(bundle)["generation"] == 1
    assert (content_of(bundle, "a.txt"), content_of(bundle, "b.txt")) == ("old a", "old b")
    write_bundle(bundle, {}, files={"a.txt": text("1"), "b.txt": text("2")})
    assert len(listing(bundle)) == 3, listing(bundle)


def test_a_full_disk_is_reported_for_arrays_too(bundle: Path) -> None:
    """A limit on file size stands in for a full disk: the kernel refuses the write half-way."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(ArtefactError, match="Could not write to"):
            write_bundle(bundle, {"generation": 2}, files={"a.txt": write_arrays({"x": np.zeros(1000)})})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert read_manifest(bundle)["generation"] == 1


def test_a_folder_that_cannot_be_made_is_an_artefact_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ArtefactError, match="Could not write to"):
        write_bundle(tmp_path / "file" / "bundle", {}, files={"a.txt": text("a")})
    with pytest.raises(ArtefactError, match="holds no saved bundle"):
        read_manifest(tmp_path / "file" / "bundle")


def test_a_missing_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"holds no saved bundle: manifest\.json is missing"):
        read_manifest(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "cannot be read as JSON"),
        (b"", "cannot be read as JSON"),
        (b"\xff\xfe", "cannot be read as JSON"),
        (b"[]", "is not a manifest"),
        (b"{}", "is not a manifest"),
        (b'{"files": []}', "is not a manifest"),
        (100_000 * b"[", "cannot be read as JSON"),
        (5_000 * b"9", "cannot be read as JSON"),
        (MAX_MANIFEST_BYTES * b" " + b"{}", "cannot be read as JSON .more than"),
    ],
)
def test_a_manifest_that_is_none_is_refused(bundle: Path, content: bytes, message: str) -> None:
    (bundle / MANIFEST).write_bytes(content)
    with pytest.raises(ArtefactError, match=message):
        read_manifest(bundle)


def test_a_manifest_that_is_a_pipe_is_refused_and_not_waited_for(bundle: Path) -> None:
    (bundle / MANIFEST).unlink()
    os.mkfifo(bundle / MANIFEST)
    with pytest.raises(ArtefactError, match="a pipe, which would be waited for"):
        read_manifest(bundle)


def test_damage_truncation_and_absence_are_noticed(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    path = path_of(bundle, "a.txt")
    path.write_text("oLd a")
    check_files(bundle, manifest)
    with pytest.raises(ArtefactError, match=rf"{path.name} is damaged"):
        read_file(bundle, manifest, "a.txt")
    path.write_text("old")
    for look in (check_files, read_a):
        with pytest.raises(ArtefactError, match="is damaged"):
            look(bundle, manifest)
    path.unlink()
    for look in (check_files, read_a):
        with pytest.raises(ArtefactError, match="is missing although the manifest lists it"):
            look(bundle, manifest)


def test_what_was_read_does_not_change_with_the_file(bundle: Path) -> None:
    """Overwritten or truncated in place, as `cp` does, while someone still uses what was read."""
    content = read_file(bundle, read_manifest(bundle), "a.txt")
    path_of(bundle, "a.txt").write_text("")
    assert content.tobytes() == b"old a"


def test_files_that_do_not_fit_in_memory_are_refused_before_they_are_read(bundle: Path) -> None:
    """A sparse file: it takes no room on the disk, and more than any machine has in memory."""
    manifest = read_manifest(bundle)
    os.truncate(path_of(bundle, "a.txt"), 2**43)
    manifest["files"]["a.txt"]["bytes"] = 2**43
    with pytest.raises(ArtefactError, match=rf"does not fit in memory: its files have {2**43 + 5:,} bytes"):
        check_files(bundle, manifest)


@pytest.mark.parametrize("entry", [None, "a.txt", {"name": "a.txt"}, {"bytes": 1, "sha256": ""}])
def test_a_file_that_the_manifest_does_not_list_is_refused(bundle: Path, entry: object) -> None:
    manifest = read_manifest(bundle)
    manifest["files"]["c.txt"] = entry
    with pytest.raises(ArtefactError, match=r"does not list c\.txt"):
        read_file(bundle, manifest, "c.txt")


@pytest.mark.parametrize("escape", ["../secret.txt", "{absolute}", "sub/../../secret.txt", "..", "", "a\0b", "\ud800"])
def test_a_manifest_cannot_point_outside_its_folder(bundle: Path, escape: str) -> None:
    secret = bundle.parent / "secret.txt"
    secret.write_text("old a")
    manifest = read_manifest(bundle)
    manifest["files"]["a.txt"]["name"] = escape.format(absolute=secret)
    with pytest.raises(ArtefactError, match="points outside its folder"):
        read_file(bundle, manifest, "a.txt")


ARRAYS: dict[str, AnyArray] = {
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "transposed": np.arange(12, dtype=np.float64).reshape(3, 4).T,
    "half": np.array([1.5, -2.0], dtype=np.float16),
    "flags": np.array([True, False, True]),
    "bytes": np.array([-3, 4], dtype=np.int8),
    "none": np.empty((0, 3), dtype=np.int32),
    "scalar": np.array(7, dtype=np.int64),
}


def test_arrays_equal_those_of_the_reader_of_safetensors(tmp_path: Path) -> None:
    write_arrays(ARRAYS)(tmp_path / "x.safetensors")
    found, loaded = stored(tmp_path / "bundle", write_arrays(ARRAYS)), load_file(tmp_path / "x.safetensors")
    assert found.keys() == loaded.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        for read in (found[name], loaded[name]):
            assert (read.dtype, read.shape) == (array.dtype, array.shape), name
            np.testing.assert_array_equal(read, array)


def test_arrays_that_were_read_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        stored(tmp_path, write_arrays(ARRAYS))["matrix"][0, 0] = 1.0


@pytest.mark.parametrize("padding", range(8))
def test_arrays_are_aligned_wherever_they_begin_in_the_file(padding: int) -> None:
    """The kernels read arrays where they lie, and may take for granted that a number begins where numbers begin."""
    spec = {"x": {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]}}
    content = header(spec, padding=padding) + np.arange(3.0).tobytes()
    found = parse_arrays(np.frombuffer(content, dtype=np.uint8))["x"]
    assert found.flags.aligned
    assert not found.flags.writeable
    assert found.tolist() == [0.0, 1.0, 2.0]


@settings(max_examples=20, deadline=None)
@given(
    dtype=st.sampled_from(["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"]),
    shape=st.lists(st.integers(0, 4), max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_array_comes_back(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: list[int], seed: int
) -> None:
    array = (8 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)
    writer = write_arrays({"x": np.asarray(array), "y": np.zeros(3)})
    found = stored(tmp_path_factory.mktemp("arrays"), writer)["x"]
    assert (found.dtype, found.shape) == (np.dtype(dtype), tuple(shape))
    np.testing.assert_array_equal(found, array)


def header(content: object, *, padding: int = 0) -> bytes:
    encoded = json.dumps(content).encode() + padding * b" "
    return len(encoded).to_bytes(8, "little") + encoded


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"abc",
        b"\xff" * 64,
        (2**40).to_bytes(8, "little") + b"{}",
        header([]),
        header("text"),
        header({"x": 3}),
        header({"x": {"dtype": "F32", "shape": [2]}}),
        header({"x": {"dtype": "F13", "shape": [2], "data_offsets": [0, 8]}}),
        header({"x": F32}),
        header({"x": F32}) + bytes(9),
        header({"x": F32 | {"shape": [-2]}}) + bytes(8),
        header({"x": F32 | {"shape": [-2, -1]}}) + bytes(8),
        header({"x": F32 | {"shape": [True, 2]}}) + bytes(8),
        header({"x": F32 | {"shape": ["2"]}}) + bytes(8),
        header({"x": F32 | {"shape": None}}) + bytes(8),
        header({"x": F32 | {"shape": [2**62, 4, 2]}}) + bytes(8),
        header({"x": F32 | {"data_offsets": [-8, 0]}}) + bytes(8),
        header({"x": F32 | {"data_offsets": [0]}}) + bytes(8),
        header({"x": F32 | {"data_offsets": ["\ud800", 8]}}) + bytes(8),
        header({"x": F32, "y": F32}) + bytes(8),
        (9_000).to_bytes(8, "little") + 9_000 * b"[",
    ],
    ids=[
        *("empty", "short", "noise", "long header", "list", "text", "number", "no offsets", "type", "no data"),
        *("too much data", "negative shape", "negative pair", "flag for a size", "text for a size", "no shape", "huge"),
        *("before the data", "one offset", "no text", "two in one place", "deep"),
    ],
)
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ArtefactError, match=r"x-\w+\.safetensors is not a safetensors file") as refused:
        stored(tmp_path, lambda path: path.write_bytes(content))
    str(refused.value).encode()


def test_every_file_is_flushed_before_the_manifest_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut after the swap must find the data on disk: files and names are flushed before the manifest moves."""
    events: list[str] = []
    replace, fsync = os.replace, os.fsync

    def watched_replace(source: Path, target: Path) -> None:
        events.append(f"rename {'manifest' if Path(target).name == MANIFEST else 'file'}")
        replace(source, target)

    def watched_fsync(descriptor: int) -> None:
        events.append("flush")
        fsync(descriptor)

    monkeypatch.setattr(os, "replace", watched_replace)
    monkeypatch.setattr(os, "fsync", watched_fsync)
    write_bundle(tmp_path / "bundle", {}, files={"a.txt": text("a"), "b.txt": text("b")})
    assert events == ["flush", "rename file"] * 2 + ["flush"] + ["flush", "rename manifest", "flush"]
