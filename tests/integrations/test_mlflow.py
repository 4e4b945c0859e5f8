"""Models that MLflow stores and loads by itself."""

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest

import beamtree as bt
from beamtree.errors import InputError
from tests.serving.models import save_model as save_random_model

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # read when it is imported
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MLflow warns of its own type hints when it is imported
    import mlflow.pyfunc

    from beamtree.integrations.mlflow import HistoryModel, load_model, log_model, save_model

pytestmark = pytest.mark.filterwarnings("ignore:::mlflow")


@pytest.fixture
def model(tmp_path: Path) -> bt.DeepTreeRetriever:
    save_random_model(tmp_path / "beamtree", 60)
    return bt.load(tmp_path / "beamtree")


@pytest.fixture
def tracking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs go to a folder, which MLflow wants to be asked for; others need a database or a server."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield
    mlflow.set_tracking_uri(before)


def expected(model: bt.DeepTreeRetriever, histories: list[list[int]], **options: object) -> list[list[int]]:
    table = model.recommend_histories(histories, **options)  # type: ignore[arg-type]
    return [table.filter(table["request"] == row)["item_id"].to_list() for row in range(len(histories))]


def test_a_saved_model_predicts_on_a_data_frame(model: bt.DeepTreeRetriever, tmp_path: Path) -> None:
    save_model(model, tmp_path / "saved")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    histories = [[100, 101], [140], []]
    found = loaded.predict(pd.DataFrame({"history": histories}, index=["a", "b", "c"]), params={"k": 4, "beam": 9})
    assert found.index.tolist() == ["a", "b", "c"]
    assert found["item_ids"].tolist() == expected(model, histories, k=4, beam=9)
    scores = model.recommend_histories([[100, 101]], k=4, beam=9)["score"].to_list()
    assert found.loc["a", "scores"] == pytest.approx(scores)
    assert found.loc["c", "scores"] == [None] * 4, "popular items have no score"
    by_default = loaded.predict(pd.DataFrame({"history": [[100]]}))
    assert by_default["item_ids"].tolist() == expected(model, [[100]])
    with_seen = loaded.predict(pd.DataFrame({"history": [[100]]}), params={"k": 60, "exclude_seen": False})
    assert 100 in with_seen["item_ids"][0]


@pytest.mark.usefixtures("tracking")
def test_a_logged_model_comes_back_as_either_kind(model: bt.DeepTreeRetriever) -> None:
    example = pd.DataFrame({"history": [[100, 101]]})
    with mlflow.start_run():
        info = log_model(model, "films", input_example=example, metadata={"team": "shelf"})
    assert mlflow.pyfunc.load_model(info.model_uri).predict(example)["item_ids"][0] == expected(model, [[100, 101]])[0]
    again = load_model(info.model_uri)
    assert again.recommender.artefact.version == model.recommender.artefact.version
    assert info.metadata == {"team": "shelf"}


def test_what_a_client_can_read_of_it(model: bt.DeepTreeRetriever, tmp_path: Path) -> None:
    save_model(model, tmp_path / "saved")
    signature = mlflow.models.get_model_info(str(tmp_path / "saved")).signature.to_dict()
    assert [column["name"] for column in json.loads(signature["inputs"])] == ["history"]
    assert {spec["name"]: spec["default"] for spec in json.loads(signature["params"])} == {
        "k": 20,
        "beam": 8,
        "exclude_seen": True,
    }
    assert "beamtree[mlflow]==" in (tmp_path / "saved" / "requirements.txt").read_text()
    assert not list((tmp_path / "saved").rglob("*.pkl")), "nothing is pickled"


def test_text_ids(tmp_path: Path) -> None:
    save_random_model(tmp_path / "beamtree", 60, text_ids=True)
    model = bt.load(tmp_path / "beamtree")
    save_model(model, tmp_path / "saved")
    found = mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict(pd.DataFrame({"history": [["i/100", "i/9"]]}))
    assert found["item_ids"][0] == model.recommend_histories([["i/100"]])["item_id"].to_list()


def test_what_cannot_be_asked_or_loaded_is_an_error(model: bt.DeepTreeRetriever, tmp_path: Path) -> None:
    bare = HistoryModel(model)
    with pytest.raises(InputError, match=r"column 'history', .* got columns"):
        bare.predict(pd.DataFrame({"items": [[100]]}))
    with pytest.raises(InputError, match=r"got N. Leave them out"):
        bare.predict(pd.DataFrame({"history": [[100]]}), {"N": 3})
    (tmp_path / "other.py").write_text("def predict(x):\n    return x\n")
    mlflow.pyfunc.save_model(tmp_path / "other", loader_module="other", data_path=str(tmp_path / "other.py"))
    with pytest.raises(InputError, match="got one that 'other' loads"):
        load_model(tmp_path / "other")


def test_a_score_with_parts_that_mlflow_could_not_make_is_refused(tmp_path: Path) -> None:
    artefact = SimpleNamespace(weights={"mine/table": np.zeros(1), "memory/popularity": np.zeros(1)})
    model = SimpleNamespace(recommender=SimpleNamespace(artefact=artefact))
    with pytest.raises(InputError, match=r"parts of your own \(mine\), which MLflow has no way to make again"):
        save_model(cast(bt.DeepTreeRetriever, model), tmp_path / "saved")
