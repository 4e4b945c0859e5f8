"""Models that are damaged, malformed or absurd in the folder of the served one: all refused, none of them harmful."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from beamtree.artefact import load_artefact, save_artefact
from benchmarks.siege_harness import Figures, SiegeServer, besieged

PATIENCE_SECONDS = 60.0

Spoil = Callable[[Path], None]


def attack(model: Path, folder: Path, *, seconds: float) -> Figures:
    """Each hostile model in turn, until it is refused; then a sound one. `seconds` plays no part.

    hostile_models, refused: how many there were, and how many of them the failure metric counts; watcher_stopped: 1
    where the watcher no longer looks; taken_in_the_end: whether the sound model is served (1).
    """
    del seconds
    served = folder / "served"
    shutil.copytree(model, served)
    refused = 0
    with besieged(served, "--watch-seconds", "0.05", log=folder / "log") as (server, figures):
        for spoil in SPOILS.values():
            shutil.copytree(model, folder / "next")
            spoil(folder / "next")
            before = server.metric("beamtree_reload_failures_total")
            put(folder / "next", served)
            refused += wait_until(server, "beamtree_reload_failures_total", above=before)
        beat = server.metric("beamtree_watcher_heartbeat_seconds") if server.is_alive else 0.0
        save_artefact(served, replace(load_artefact(model), training={"sound": True}))
        sound = f'beamtree_model_info{{version="{load_artefact(served).version}"}}'
        taken = wait_until(server, sound, above=0.0)
        is_watching = wait_until(server, "beamtree_watcher_heartbeat_seconds", above=beat)
    return figures | {
        "hostile_models": len(SPOILS),
        "refused": refused,
        "watcher_stopped": int(not is_watching),
        "taken_in_the_end": int(taken),
    }


def put(source: Path, target: Path) -> None:
    """Move the files of a folder to another, the manifest last."""
    for path in sorted(source.iterdir(), key=lambda path: path.name == "manifest.json"):
        os.replace(path, target / path.name)
    source.rmdir()


def wait_until(server: SiegeServer, metric: str, *, above: float) -> bool:
    """Whether a metric of the server goes above a value while it is worth waiting."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while server.is_alive and time.monotonic() < give_up_at:
        if server.metric(metric) > above:
            return True
        time.sleep(0.02)
    return False


def stated(**changes: Any) -> Spoil:
    """Other entries in the manifest."""

    def spoil(directory: Path) -> None:
        manifest = json.loads((directory / "manifest.json").read_text())
        (directory / "manifest.json").write_text(json.dumps(manifest | changes))

    return spoil


def manifest_of(content: bytes) -> Spoil:
    """Another manifest altogether."""

    def spoil(directory: Path) -> None:
        (directory / "manifest.json").write_bytes(content)

    return spoil


def arrays_as(change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Spoil:
    """Other weights."""

    def spoil(directory: Path) -> None:
        artefact = load_artefact(directory)
        save_artefact(directory, replace(artefact, weights=change(artefact.weights)))

    return spoil


def date_beyond_all_years(directory: Path) -> None:
    """A column that loads, and panics when it is shown."""
    artefact = load_artefact(directory)
    dates = pl.Series("when", np.full(len(artefact.item_table), 2**31 - 1), dtype=pl.Int32).cast(pl.Date)
    save_artefact(directory, replace(artefact, item_table=artefact.item_table.with_columns(dates)))


def negative_shapes(directory: Path) -> None:
    """A header of the weights with sizes below 0, and a manifest that agrees with it."""
    manifest = json.loads((directory / "manifest.json").read_text())
    entry = manifest["files"]["weights.safetensors"]
    content = (directory / entry["name"]).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    for spec in header.values():
        spec["shape"] = [-size for size in spec["shape"]]
    encoded = json.dumps(header).encode()
    content = len(encoded).to_bytes(8, "little") + encoded + content[8 + length :]
    (directory / entry["name"]).write_bytes(content)
    changed = entry | {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    stated(files=manifest["files"] | {"weights.safetensors": changed})(directory)


def larger_than_memory(directory: Path) -> None:
    """Weights of 8 TB, which take no room on the disk."""
    manifest = json.loads((directory / "manifest.json").read_text())
    entry = manifest["files"]["weights.safetensors"]
    os.truncate(directory / entry["name"], 2**43)
    stated(files=manifest["files"] | {"weights.safetensors": entry | {"bytes": 2**43}})(directory)


SPOILS: dict[str, Spoil] = {
    "branching as text": stated(branching="2"),
    "no settings": stated(settings=None),
    "windows without end": stated(settings={"model": {"windows": [10**9]}}),
    "format of the future": stated(format_version=99),
    "deep JSON": manifest_of(100_000 * b"["),
    "no manifest": manifest_of(b""),
    "negative shapes": negative_shapes,
    "larger than memory": larger_than_memory,
    "flattened weights": arrays_as(lambda weights: {name: array.reshape(-1) for name, array in weights.items()}),
    "not finite": arrays_as(lambda weights: {name: np.full_like(array, np.nan) for name, array in weights.items()}),
    "no weights": arrays_as(lambda weights: {"attention/node_table": weights["attention/node_table"]}),
    "date beyond all years": date_beyond_all_years,
}
