"""What docs/integrations.md tells people to type works as it stands."""

import json
import os
import re
import warnings
from pathlib import Path

import pandas as pd
import pytest

import beamtree as bt
from tests.cli.beamtree_command import write_sample
from tests.integrations.test_rectools import FakeDataset
from tests.serving.server import REPOSITORY, Server
from tests.small import small_config

PAGE = (REPOSITORY / "docs" / "integrations.md").read_text(encoding="utf-8")


def block(language: str, *, with_text: str) -> str:
    [found] = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL) if with_text in text]
    return str(found)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sample of a log, and models/mine fitted on it."""
    write_sample(tmp_path)
    monkeypatch.chdir(tmp_path)
    bt.DeepTreeRetriever(small_config()).fit("ratings.csv").save("models/mine")
    return tmp_path


@pytest.mark.filterwarnings("ignore:::mlflow")
def test_mlflow(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((folder / "runs").as_uri())
    try:
        exec(compile(block("python", with_text="mlflow"), "integrations.md", "exec"), {})
    finally:
        mlflow.set_tracking_uri(before)
    shown = capsys.readouterr().out
    assert "item_ids" in shown
    assert "similar_id" in shown
    assert list((folder / "runs").rglob("f_at_20"))


@pytest.mark.usefixtures("folder")
def test_rectools() -> None:
    frame = pd.read_csv("ratings.csv").rename(columns={"timestamp": "datetime"})[["user_id", "item_id", "datetime"]]
    names = {"bt": bt, "dataset": FakeDataset(frame.assign(weight=1.0)), "users": frame["user_id"].unique()[:3]}
    exec(compile(block("python", with_text="RecToolsModel"), "integrations.md", "exec"), names)
    found = names["frame"]
    assert isinstance(found, pd.DataFrame)
    seen = frame.groupby("user_id", sort=False)["item_id"].nunique()[:3]
    unseen = (frame["item_id"].nunique() - seen).clip(upper=10)
    assert found.groupby("user_id", sort=False)["rank"].max().tolist() == unseen.tolist()


def test_the_open_inference_protocol(folder: Path) -> None:
    told = block("sh", with_text="/infer")
    [path] = re.findall(r"localhost:8000(\S+)", told)
    body = json.loads(told.partition("-d '")[2].rpartition("'")[0])
    server = Server(folder / "models" / "mine", log=folder / "log")
    try:
        answer = server.post(path, body)
        assert answer.status == 200, answer.body
        [counts] = [output["data"] for output in answer.json["outputs"] if output["name"] == "count"]
        assert counts == [5, 5]
        addresses = re.findall(r"`GET (/v2[\w/]*)`", PAGE)
        assert [server.get(address).status for address in addresses] == [200] * 5
    finally:
        server.stop()
