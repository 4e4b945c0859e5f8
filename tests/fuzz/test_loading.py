"""Spoilt models by the hundred against the properties of every model folder.

`make fuzz` runs many more examples, with kernels that check every access to memory.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beamtree.artefact import FORMAT_VERSION, OLDEST_FORMAT_VERSION, load_artefact, save_artefact
from beamtree.storage import MANIFEST
from tests.fixtures import write_artefact_v5
from tests.fuzz.properties import check_recommends, check_serves, sound_models
from tests.fuzz.spoiling import Files, spoil, write_model

EXAMPLES = int(os.environ.get("BEAMTREE_FUZZ_EXAMPLES", "150"))
IS_SHORT = "BEAMTREE_FUZZ_EXAMPLES" not in os.environ

fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=IS_SHORT,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Files]:
    return sound_models(tmp_path_factory.mktemp("sound"))


def test_models_of_every_format_are_spoilt(models: list[Files]) -> None:
    versions = {json.loads(files[MANIFEST])["format_version"] for files in models}
    assert versions == set(range(OLDEST_FORMAT_VERSION, FORMAT_VERSION + 1))


def test_sound_models_are_not_refused_and_answer(models: list[Files], tmp_path: Path) -> None:
    for files in models:
        write_model(files, tmp_path / "model")
        load_artefact(tmp_path / "model")
        check_recommends(tmp_path / "model")
        check_serves(tmp_path / "model")


def test_a_model_whose_first_items_are_removed_is_sound(tmp_path: Path) -> None:
    """Random removals are a fault that no loader can see: the properties hold for what is left."""
    sound = load_artefact(write_artefact_v5.DIRECTORY)
    save_artefact(tmp_path, replace(sound, tree=sound.tree.without(np.array([0, 1], dtype=np.int32))))
    check_recommends(tmp_path)
    check_serves(tmp_path)


@pytest.mark.filterwarnings("ignore")
@fuzz
@given(data=st.data())
def test_a_spoilt_model_is_refused_or_answers(models: list[Files], data: Any, tmp_path: Path) -> None:
    write_model(spoil(data.draw(st.sampled_from(models)), data.draw), tmp_path / "model")
    check_recommends(tmp_path / "model")


@pytest.mark.filterwarnings("ignore")
@fuzz
@given(data=st.data())
def test_a_spoilt_model_is_not_served_or_passes_its_trial(models: list[Files], data: Any, tmp_path: Path) -> None:
    write_model(spoil(data.draw(st.sampled_from(models)), data.draw), tmp_path / "model")
    check_serves(tmp_path / "model")
