"""A thousand people of MovieLens: the exported search gives them what the engine gives."""

import os
from pathlib import Path

import numpy as np
import pytest

from beamtree.config import Config
from beamtree.data.sequences import cut_histories
from beamtree.export.onnx import export_onnx
from beamtree.recommender import DeepTreeRetriever
from tests.export.exported import assert_same_up_to_ties, run, search

NUM_HISTORIES = 1_000


def movielens() -> Path:
    given_folder = os.environ.get("BEAMTREE_DATA")
    folder = Path(given_folder) if given_folder else Path(__file__).resolve().parents[3] / "shared" / "data"
    return folder / "ml-100k"


@pytest.mark.skipif(not movielens().is_dir(), reason="the real logs are not here")
def test_a_thousand_real_histories(tmp_path: Path) -> None:
    config = Config.preset(
        "small", training={"epochs": 0.1, "schedule": {"validations": 1}}, retrieval={"beam_width": 50}
    )
    model = DeepTreeRetriever(config).fit(str(movielens() / "interactions.parquet"))
    artefact, sequences = model.recommender.artefact, model.dataset.sequences
    generator = np.random.default_rng(0)
    users = generator.integers(len(sequences), size=NUM_HISTORIES)
    starts = sequences.offsets[users]
    ends = starts + generator.integers(0, sequences.offsets[users + 1] - starts + 1)
    histories = cut_histories(sequences.items, starts=starts, ends=ends, length=config.model.attention_history)
    export_onnx(artefact, tmp_path / "model.onnx", k=20)
    found = search(artefact, histories, k=20, beam_width=50)
    assert len(np.unique(found.items)) > 100
    outputs = run(tmp_path / "model.onnx", histories)
    assert_same_up_to_ties(outputs, found)
    assert (outputs["items"] == found.items).mean() > 0.99
