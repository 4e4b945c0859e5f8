"""What lies beside a model so that it can go on: found by its log, whatever was interrupted, and checked."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from beamtree.data.sequences import Sequences
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import ArtefactError
from beamtree.storage import MANIFEST
from beamtree.updating.state import LearnedLog, UpdateState, forget_others, load_state, save_state, states_beside

STATE = UpdateState(
    LearnedLog(
        Vocabulary(pl.Series(["a", "b"])),
        Sequences(np.array([0, 1, 2], dtype=np.int32), np.array([0, 2, 3])),
        np.array([1.5, 2.5, 0.5]),
    ),
    {"items.first_moment": np.ones((3, 2), dtype=np.float32)},
)


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    save_state(tmp_path / "model", STATE, fingerprint="f" * 64)
    found = load_state(tmp_path / "model", fingerprint="f" * 64)
    assert found.log.users.ids.to_list() == ["a", "b"]
    assert found.log.sequences.items.tolist() == [0, 1, 2]
    assert found.log.newest == 2.5
    assert np.array_equal(found.optimiser["items.first_moment"], np.ones((3, 2)))


def test_the_state_of_the_model_in_use_stays_until_the_next_one_is_saved(tmp_path: Path) -> None:
    model = tmp_path / "model"
    save_state(model, STATE, fingerprint="old" * 20)
    save_state(model, STATE, fingerprint="new" * 20)  # a crash here leaves the old model with its own state
    assert load_state(model, fingerprint="old" * 20).log.newest == 2.5
    forget_others(model, fingerprint="new" * 20)
    assert len(list(states_beside(model).iterdir())) == 1
    with pytest.raises(ArtefactError, match="the log that it has learned from is not kept in"):
        load_state(model, fingerprint="old" * 20)


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model"
    save_state(model, STATE, fingerprint="f" * 64)
    [arrays] = states_beside(model).glob("*/state-*.safetensors")
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1
    arrays.write_bytes(bytes(content))
    with pytest.raises(ArtefactError):
        load_state(model, fingerprint="f" * 64)


@pytest.mark.parametrize(
    "change", [{"format_version": 0}, {"format_version": 2}, {"format_version": "1"}, {"kind": "beamtree model"}]
)
def test_a_state_of_another_format_is_refused_with_what_to_do(tmp_path: Path, change: dict[str, object]) -> None:
    model = tmp_path / "model"
    save_state(model, STATE, fingerprint="f" * 64)
    [path] = states_beside(model).glob(f"*/{MANIFEST}")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ArtefactError, match=r"expected 'beamtree state for updates', format 1\. Fit the model again"):
        load_state(model, fingerprint="f" * 64)
