"""Models of every format there ever was: they load, answer as they did, and are told apart from those of the future."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beamtree import artefact as artefact_module
from beamtree.artefact import FORMAT_VERSION, Artefact, load_artefact, save_artefact
from beamtree.errors import ArtefactError
from beamtree.model.memory import Memory
from beamtree.recommender import DeepTreeRetriever
from beamtree.storage import MANIFEST
from tests.fixtures import (
    write_artefact_v1,
    write_artefact_v2,
    write_artefact_v3,
    write_artefact_v4,
    write_artefact_v5,
    write_artefact_v6,
)
from tests.small import assert_same_bytes

WRITERS = {
    1: write_artefact_v1,
    2: write_artefact_v2,
    3: write_artefact_v3,
    4: write_artefact_v4,
    5: write_artefact_v5,
    6: write_artefact_v6,
}
Answers = list[list[dict[str, Any]]]


def assert_close(found: Answers, expected: Answers) -> None:
    assert len(found) == len(expected) == 4
    for table, stored in zip(found, expected, strict=True):
        for row, stored_row in zip(table, stored, strict=True):
            score, stored_score = row.pop("score"), stored_row.pop("score")
            assert row == stored_row
            assert score == (stored_score if stored_score is None else pytest.approx(stored_score, rel=1e-4))


def assert_same_facts(found: Artefact, expected: Artefact) -> None:
    """All that a person can check; weights and settings are the stored ones."""
    assert found.tree.branching == expected.tree.branching
    np.testing.assert_array_equal(found.tree.placement, expected.tree.placement)
    np.testing.assert_array_equal(found.tree.removed, expected.tree.removed)
    np.testing.assert_array_equal(found.popularity, expected.popularity)
    assert found.item_table.equals(expected.item_table)
    assert (found.data_fingerprint, found.metrics, found.training) == (
        expected.data_fingerprint,
        expected.metrics,
        expected.training,
    )


def format_of(directory: Path) -> int:
    return int(json.loads((directory / MANIFEST).read_text())["format_version"])


def test_there_is_a_model_of_every_format() -> None:
    """Whoever changes the format adds the one before to the fixtures, and goes on reading it."""
    assert sorted(WRITERS) == list(range(1, FORMAT_VERSION + 1))


@pytest.mark.parametrize("version", WRITERS)
def test_models_of_every_format_give_the_stored_answers(version: int) -> None:
    writer = WRITERS[version]
    assert format_of(writer.DIRECTORY) == version
    assert_close(writer.answers(writer.DIRECTORY), json.loads(writer.ANSWERS.read_text(encoding="utf-8")))


def test_the_model_of_format_1_still_loads() -> None:
    found = load_artefact(write_artefact_v1.DIRECTORY)
    assert_same_facts(found, write_artefact_v1.small_artefact())
    assert "attention/node_table" in found.weights, "format 1 did not name its only part"
    how = found.config.training
    assert (how.method, how.target_horizon) == ("dtr-u", 1), "whatever is the default now"


def test_the_model_of_format_2_still_loads() -> None:
    found = load_artefact(write_artefact_v2.DIRECTORY)
    assert_same_facts(found, write_artefact_v2.artefact())
    assert found.config.model.parts == ("tower", "memory")
    assert found.part("tower")["node_table"].shape == (found.tree.num_nodes, 4)
    np.testing.assert_allclose(
        Memory.from_arrays(found.part("memory")).popularity, np.log1p(found.popularity), rtol=1e-6
    )
    assert (found.part("memory")["returns"] == 1.0).all(), "all items returned alike"


def test_the_model_of_format_3_still_loads() -> None:
    found = load_artefact(write_artefact_v3.DIRECTORY)
    assert_same_facts(found, write_artefact_v3.artefact())
    assert found.config.model.parts == ("attention", "tower", "memory")
    assert len(set(found.part("memory")["returns"].tolist())) > 1


def test_the_model_of_format_4_still_loads() -> None:
    found = load_artefact(write_artefact_v4.DIRECTORY)
    assert_same_facts(found, write_artefact_v4.artefact())
    assert found.part("memory")["weights.repeats"] == -2.0


def test_the_model_of_format_5_still_loads() -> None:
    found = load_artefact(write_artefact_v5.DIRECTORY)
    assert_same_facts(found, write_artefact_v5.artefact())
    assert found.item_table["item_id"].to_list() == [*range(11, 19)]
    assert found.tree.removed.tolist() == [2], "13 is there for histories, and in no answer"
    assert found.fitted_items.height == 6


def test_the_model_of_format_6_still_loads() -> None:
    found = load_artefact(write_artefact_v6.DIRECTORY)
    assert_same_facts(found, write_artefact_v6.artefact())
    assert found.part("tower")["encoder.length"] == 5
    assert found.request_features == write_artefact_v6.artefact().request_features
    oslo, bergen = ([{"city": city}] for city in ("Oslo", "Bergen"))
    model = DeepTreeRetriever.load(write_artefact_v6.DIRECTORY)
    lists = [model.recommend_histories([[11]], user_features=who)["item_id"].to_list() for who in (oslo, bergen)]
    assert lists[0] != lists[1], "who asks makes a difference"


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_a_model_of_format_3_may_have_a_power_that_changes_nothing(power: float, tmp_path: Path) -> None:
    """Some models of format 3 raised their counted evidence to a power: 1 is no loss, any other cannot be answered."""
    kept = load_artefact(write_artefact_v3.DIRECTORY)
    save_artefact(tmp_path, replace(kept, weights={**kept.weights, "memory/weights.power": np.array(power)}))
    path = tmp_path / MANIFEST
    manifest = json.loads(path.read_text()) | {"format_version": 3}
    path.write_text(json.dumps(manifest))
    if power == 1.0:
        assert write_artefact_v3.answers(tmp_path) == write_artefact_v3.answers(write_artefact_v3.DIRECTORY)
    else:
        with pytest.raises(ArtefactError, match="to a power, which this version does not: fit the model again"):
            load_artefact(tmp_path)


@pytest.mark.parametrize("version", WRITERS)
def test_an_old_model_that_is_saved_again_is_one_of_today_with_the_same_answers(version: int, tmp_path: Path) -> None:
    writer = WRITERS[version]
    old = load_artefact(writer.DIRECTORY)
    save_artefact(tmp_path, old)
    assert format_of(tmp_path) == FORMAT_VERSION
    assert_same_bytes({**load_artefact(tmp_path).weights}, {**old.weights})
    assert writer.answers(tmp_path) == writer.answers(writer.DIRECTORY)


@pytest.mark.parametrize("version", sorted(WRITERS)[1:])
def test_an_older_beamtree_says_what_to_do_about_a_newer_model(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artefact_module, "FORMAT_VERSION", version - 1)
    message = rf"has format version {version}; this beamtree reads versions 1 to {version - 1}\. Upgrade"
    with pytest.raises(ArtefactError, match=message):
        load_artefact(WRITERS[version].DIRECTORY)


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (FORMAT_VERSION + 1, "Upgrade beamtree, or fit the model again"),
        (10**30, "Upgrade beamtree"),
        (0, "Use the beamtree that saved it"),
        (None, "Use the beamtree that saved it"),
        ("1", "Use the beamtree that saved it"),
        (True, "Use the beamtree that saved it"),
        (1.0, "Use the beamtree that saved it"),
        ([2], "Use the beamtree that saved it"),
    ],
)
def test_a_model_of_no_known_format_is_refused_with_what_to_do(tmp_path: Path, version: object, remedy: str) -> None:
    """Before anything else is looked at: the rest of a format of the future may look like anything."""
    shutil.copytree(write_artefact_v2.DIRECTORY, tmp_path / "model")
    path = tmp_path / "model" / MANIFEST
    manifest = json.loads(path.read_text()) | {"format_version": version, "settings": {"from": "the future"}}
    path.write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError) as refused:
        load_artefact(tmp_path / "model")
    assert f"has format version {version!r}; this beamtree reads versions 1 to {FORMAT_VERSION}. " in str(refused.value)
    assert remedy in str(refused.value)
