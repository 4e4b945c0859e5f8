import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import FORMAT_VERSION, Artefact, load_artefact, save_artefact
from beamtree.errors import ArtefactError
from beamtree.storage import MANIFEST
from tests.fixtures.write_artefact_v1 import ANSWERS, DIRECTORY, answers, small_artefact
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
    assert_same(load_artefact(saved, verify=False), small_artefact())
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


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 0, None, "1"])
def test_an_unknown_format_version_is_refused(saved: Path, version: object) -> None:
    edit_manifest(saved, format_version=version)
    with pytest.raises(ArtefactError, match=rf"has format version {version!r}; this beamtree reads versions 1 to 2"):
        load_artefact(saved)


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
        {"settings": {"model": {"unheard_of": 1}}},
        {"settings": {"tree": {"branching": 1000}}},
    ],
)
def test_a_manifest_that_contradicts_the_files_is_refused(saved: Path, changes: dict[str, Any]) -> None:
    edit_manifest(saved, **changes)
    with pytest.raises(ArtefactError, match="does not fit together"):
        load_artefact(saved)


def test_a_manifest_that_lacks_an_entry_is_refused(saved: Path) -> None:
    manifest = json.loads((saved / MANIFEST).read_text())
    del manifest["metrics"]
    (saved / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match="does not fit together: 'metrics'"):
        load_artefact(saved)


def test_the_model_of_format_version_1_still_loads() -> None:
    """Written once and kept for ever: whoever changes the format must go on reading this."""
    assert_same(load_artefact(DIRECTORY), small_artefact_as_stored())
    assert json.loads((DIRECTORY / MANIFEST).read_text())["format_version"] == 1
    how = load_artefact(DIRECTORY).config.training
    assert (how.method, how.target_horizon, how.targets_per_history) == ("dtr-u", 1, 1), "whatever is the default now"


def small_artefact_as_stored() -> Artefact:
    """The stored one with the facts that a person can check, and its own weights."""
    stored = load_artefact(DIRECTORY)
    return replace(small_artefact(), weights=stored.weights, config=stored.config)


def test_the_model_of_format_version_1_still_gives_the_stored_answers() -> None:
    expected = json.loads(ANSWERS.read_text(encoding="utf-8"))
    found = answers()
    assert len(found) == len(expected) == 4
    for table, stored in zip(found, expected, strict=True):
        for row, stored_row in zip(table, stored, strict=True):
            score, stored_score = row.pop("score"), stored_row.pop("score")
            assert row == stored_row
            assert score == (stored_score if stored_score is None else pytest.approx(stored_score, rel=1e-4))


def test_a_copied_folder_is_the_same_model(tmp_path: Path) -> None:
    shutil.copytree(DIRECTORY, tmp_path / "copy")
    assert load_artefact(tmp_path / "copy").version == load_artefact(DIRECTORY).version
