import hashlib
import io
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save

from beamtree.artefact import Artefact, faults_of, load_artefact, read_config, save_artefact
from beamtree.errors import ArtefactError
from beamtree.storage import MANIFEST
from tests.fixtures.write_artefact_v1 import DIRECTORY, small_artefact
from tests.small import assert_same_bytes, small_config, stirred_model, weights_of


def assert_same(left: Artefact, right: Artefact) -> None:
    assert left.config == right.config
    assert_same_bytes({**left.weights}, {**right.weights})
    assert left.tree.branching == right.tree.branching
    np.testing.assert_array_equal(left.tree.item_at_leaf, right.tree.item_at_leaf)
    np.testing.assert_array_equal(left.popularity, right.popularity)
    assert left.item_table.equals(right.item_table)
    assert left.item_table.schema == right.item_table.schema
    assert (left.data_fingerprint, left.metrics, left.training) == (
        right.data_fingerprint,
        right.metrics,
        right.training,
    )


def edit_manifest(directory: Path, **changes: Any) -> None:
    manifest = json.loads((directory / MANIFEST).read_text())
    (directory / MANIFEST).write_text(json.dumps({**manifest, **changes}))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_artefact(tmp_path / "model", small_artefact())
    return tmp_path / "model"


def test_what_is_saved_comes_back_exactly(saved: Path) -> None:
    assert_same(load_artefact(saved), small_artefact())
    assert load_artefact(saved).items.ids.to_list() == ["apple", "banana", "cherry", "date", "elder", "fig"]


def test_all_kinds_of_model_and_ids_come_back(tmp_path: Path) -> None:
    artefact = small_artefact()
    config = small_config(model={**artefact.config.model.model_dump(), "normalisation": "batch"})
    table = artefact.item_table.with_columns(pl.Series("item_id", [7, 9, 11, 2, 5, 3]), price=pl.lit(1.5))
    changed = replace(
        artefact,
        config=config,
        weights=weights_of(stirred_model(config.model, artefact.tree, seed=3)),
        item_table=table,
        metrics={},
    )
    save_artefact(tmp_path, changed)
    assert_same(load_artefact(tmp_path), changed)
    assert load_artefact(tmp_path).items.holds_integers


def test_saving_again_replaces_the_model_and_its_version(saved: Path) -> None:
    first = load_artefact(saved)
    assert first.version == load_artefact(saved).version != ""
    other = replace(small_artefact(), popularity=np.array([5, 1, 4, 4, 0, 3]))
    save_artefact(saved, other)
    assert_same(load_artefact(saved), other)
    assert load_artefact(saved).version != first.version
    save_artefact(saved, small_artefact())
    assert load_artefact(saved).version == first.version, "the same files have the same version"


def test_a_save_that_fails_leaves_the_model(saved: Path) -> None:
    class Unwritable(pl.DataFrame):
        def write_parquet(self, *_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

    broken = replace(small_artefact(), popularity=np.zeros(6, dtype=np.int64), item_table=Unwritable({"item_id": [1]}))
    with pytest.raises(ArtefactError, match="No space left on device"):
        save_artefact(saved, broken)
    assert_same(load_artefact(saved), small_artefact())


@pytest.mark.parametrize("kind", ["beamtree checkpoint", None])
def test_another_kind_of_bundle_is_refused(saved: Path, kind: str | None) -> None:
    edit_manifest(saved, kind=kind)
    with pytest.raises(ArtefactError, match=rf"holds {kind!r}; expected a beamtree model"):
        load_artefact(saved)


@pytest.mark.parametrize("pattern", ["weights-*", "index-*", "items-*"])
def test_damage_to_any_file_is_noticed(saved: Path, pattern: str) -> None:
    (path,) = saved.glob(pattern)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtefactError, match=rf"{path.name} is damaged"):
        load_artefact(saved)
    path.unlink()
    with pytest.raises(ArtefactError, match=rf"{path.name} is missing"):
        load_artefact(saved)


@pytest.mark.parametrize(
    "changes",
    [
        {"branching": 1},
        {"branching": "2"},
        {"branching": True},
        {"branching": 2**70},
        {"settings": None},
        {"settings": {"model": None}},
        {"settings": {"model": {"windows": [10**9]}}},
        {"settings": {"model": {"windows": 2000 * [1]}}},
        {"settings": {"\ud800": {}}},
        {"metrics": {"test": {"recall@20": "much"}}},
        {"metrics": []},
        {"training": "long"},
        {"data_fingerprint": 5},
        {"settings": {"model": {"unheard_of": 1}}},
        {"settings": {"tree": {"branching": 1000}}},
    ],
)
def test_a_manifest_that_contradicts_the_files_is_refused(saved: Path, changes: dict[str, Any]) -> None:
    edit_manifest(saved, **changes)
    with pytest.raises(ArtefactError, match="does not fit together") as refused:
        load_artefact(saved)
    str(refused.value).encode()


def test_a_fault_of_any_length_is_told_in_short(saved: Path) -> None:
    edit_manifest(saved, settings={"model": {"windows": 100_000 * "x"}})
    with pytest.raises(ArtefactError, match="does not fit together") as refused:
        load_artefact(saved)
    assert len(str(refused.value)) < 3000


def test_other_settings_with_the_same_files_are_another_version(saved: Path) -> None:
    before = load_artefact(saved)
    settings = before.config.model_dump(mode="json")
    edit_manifest(saved, settings=settings | {"retrieval": {"beam_width": 77, "exclude_seen": False}})
    after = load_artefact(saved)
    assert after.config.retrieval.beam_width == 77
    assert after.version != before.version


def rewrite(directory: Path, name: str, content: bytes) -> None:
    """Put another file in the place of one of the model's, with the right size and checksum in the manifest."""
    files = json.loads((directory / MANIFEST).read_text())["files"]
    (directory / files[name]["name"]).write_bytes(content)
    entry = {"name": files[name]["name"], "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit_manifest(directory, files=files | {name: entry})


def parquet(table: pl.DataFrame) -> bytes:
    stream = io.BytesIO()
    table.write_parquet(stream)
    return stream.getvalue()


ITEMS = small_artefact().item_table


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("items.parquet", b"PAR1 and no more", "does not fit together"),
        ("items.parquet", parquet(ITEMS.head(5)), "The tree has 6 items, but the item table has 5 rows"),
        ("items.parquet", parquet(pl.DataFrame({"item_id": pl.zeros(10**7, eager=True)})), "has 10000000 rows"),
        ("items.parquet", parquet(ITEMS.drop("item_id")), "Expected a column item_id"),
        ("index.safetensors", save({"popularity": np.zeros(6, np.int64)}), "KeyError: 'item_at_leaf'"),
        ("index.safetensors", save({"item_at_leaf": np.arange(6), "popularity": np.zeros(6, bool)}), "got bool"),
        ("index.safetensors", save({"item_at_leaf": np.arange(6), "popularity": np.full(6, np.nan)}), "finite numbers"),
        ("index.safetensors", save({"item_at_leaf": np.arange(6), "popularity": np.arange(5)}), r"got .* shape \(5,\)"),
        (
            "weights.safetensors",
            save({"attention/mlp.3.bias": np.array([np.nan])}),
            "mlp.3.bias hold values that are not",
        ),
    ],
    ids=["noise", "rows", "bomb", "no ids", "no leaves", "popularity", "no number", "too few", "not finite"],
)
def test_files_that_contradict_each_other_are_refused(saved: Path, name: str, content: bytes, message: str) -> None:
    rewrite(saved, name, content)
    with pytest.raises(ArtefactError, match=message):
        load_artefact(saved)


def test_a_panic_of_the_data_frame_library_is_an_artefact_error() -> None:
    """It is no Exception: whoever catches those alone lets it through."""
    message = "folder does not fit together: PanicException: at the disco"
    with pytest.raises(ArtefactError, match=message), faults_of(Path("folder")):
        raise pl.exceptions.PanicException("at the disco")


def test_a_model_that_does_not_fit_in_memory_is_refused(saved: Path) -> None:
    manifest = json.loads((saved / MANIFEST).read_text())
    entry = manifest["files"]["weights.safetensors"]
    os.truncate(saved / entry["name"], 2**43)
    edit_manifest(saved, files=manifest["files"] | {"weights.safetensors": entry | {"bytes": 2**43}})
    with pytest.raises(ArtefactError, match="does not fit in memory"):
        load_artefact(saved)


def test_what_is_overwritten_later_does_not_reach_a_loaded_model(saved: Path) -> None:
    loaded = load_artefact(saved)
    for path in saved.iterdir():
        path.write_bytes(b"")
    assert_same(loaded, small_artefact())


def test_settings_are_read_without_the_rest(saved: Path) -> None:
    for path in saved.glob("*-*"):
        path.unlink()
    assert read_config(saved) == small_artefact().config


def test_a_manifest_that_lacks_an_entry_is_refused(saved: Path) -> None:
    manifest = json.loads((saved / MANIFEST).read_text())
    del manifest["metrics"]
    (saved / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match=r"does not fit together: .* \(metrics: Field required\)"):
        load_artefact(saved)


def test_a_copied_folder_is_the_same_model(tmp_path: Path) -> None:
    shutil.copytree(DIRECTORY, tmp_path / "copy")
    assert load_artefact(tmp_path / "copy").version == load_artefact(DIRECTORY).version
