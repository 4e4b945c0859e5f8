"""Whatever is in a model folder: it is refused with an ArtefactError, or it loads and answers.

`make fuzz` runs many more examples, with kernels that check every access to memory.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beamtree.errors import ArtefactError
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import RecommendOptions, RecommendRequest
from beamtree.serving.loaded_model import load_model
from beamtree.serving.trial import try_model
from tests.fixtures.write_artefact_v1 import DIRECTORY as FORMAT_1
from tests.fixtures.write_artefact_v2 import DIRECTORY as FORMAT_2
from tests.fixtures.write_artefact_v3 import DIRECTORY as FORMAT_3
from tests.fixtures.write_artefact_v4 import DIRECTORY as FORMAT_4
from tests.fuzz.spoiling import Files, read_model, spoil, write_model
from tests.serving.models import save_model

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
    """Sound models of every format, of every part of a score and of both kinds of ids."""
    folder = tmp_path_factory.mktemp("sound")
    save_model(folder / "all", 13, parts=("attention", "memory", "tower"), text_ids=True)
    save_model(folder / "memory", 9, parts=("memory",))
    return [
        read_model(directory)
        for directory in (folder / "all", folder / "memory", FORMAT_4, FORMAT_3, FORMAT_2, FORMAT_1)
    ]


@pytest.mark.filterwarnings("ignore")
@fuzz
@given(data=st.data())
def test_a_spoilt_model_is_refused_or_answers(models: list[Files], data: Any, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    write_model(spoil(models[data.draw(st.integers(0, len(models) - 1))], data.draw), directory)
    try:
        recommender = Recommender.load(directory)
    except ArtefactError as error:
        str(error).encode()
        return
    known = recommender.ids.decode(np.arange(3) % recommender.artefact.tree.num_items)
    requests = [RecommendRequest(history=known, options=RecommendOptions(k=k)) for k in (1, 5, 2**40)]
    for answer in recommender.recommend(requests):
        assert len(set(answer.items)) == len(answer.items)


@pytest.mark.filterwarnings("ignore")
@fuzz
@given(data=st.data())
def test_a_spoilt_model_is_not_served_or_passes_its_trial(models: list[Files], data: Any, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    write_model(spoil(models[data.draw(st.integers(0, len(models) - 1))], data.draw), directory)
    try:
        model = load_model(directory)
        try_model(model, directory=directory)
    except ArtefactError as error:
        str(error).encode()
        return
    assert model.recommender.explain(model.ids.decode(np.arange(1)), model.ids.decode(np.arange(1)))
