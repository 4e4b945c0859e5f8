"""POST /v1/recommend with features of users and contexts."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import Artefact, save_artefact
from beamtree.config import Config
from beamtree.data.features import FeatureSchema
from beamtree.data.request_features import RequestFeatures
from beamtree.native.offset_arrays import CONTEXT, USER
from beamtree.tree.build import plant, random_order
from tests.fuzz.properties import reading_all_kinds_of_columns
from tests.serving.conftest import StartServer
from tests.serving.models import TINY, random_tower
from tests.serving.server import Answer, Server

USERS = pl.DataFrame({"city": ["Oslo", "Rome"] * 4, "age": [20.0, 40.0, 30.0, 50.0] * 2})
CONTEXTS = pl.DataFrame({"device": ["phone", "tablet"] * 4})
READ = RequestFeatures(FeatureSchema.infer(USERS), FeatureSchema.infer(CONTEXTS))


@pytest.fixture
def server(tmp_path: Path, start: StartServer) -> Server:
    """A model with a tower of random numbers that reads city, age and device."""
    generator = np.random.default_rng(5)
    tree = plant(random_order(60, generator=generator), branching=2)
    tower: dict[str, Any] = random_tower(tree, generator=generator)
    for prefix, schema in ((USER, READ.user), (CONTEXT, READ.context)):
        tower[f"tower/{prefix}.embedding"] = generator.normal(0.0, 3.0, (schema.num_rows, 4)).astype(np.float32)
    artefact = Artefact(
        config=Config.resolve(TINY | {"model": {"parts": ("tower",)}}),
        weights=tower,
        tree=tree,
        popularity=np.arange(60)[::-1].copy(),
        item_table=pl.DataFrame(
            {
                "item_id": list(range(100, 160)),
                "title": [f"Title {item}" for item in range(60)],
                "category": ["Drama", "War", "Comedy"] * 20,
                "cover": [[0.5, float(item)] for item in range(60)],
            }
        ),
        data_fingerprint="",
        request_features=READ,
    )
    save_artefact(tmp_path / "model", artefact)
    return start(tmp_path / "model")


def test_vectors_that_would_give_no_finite_score_are_refused(start: StartServer, tmp_path: Path) -> None:
    save_artefact(tmp_path / "vectors", reading_all_kinds_of_columns())
    server = start(tmp_path / "vectors")
    for taste in ([3.4e38, 3.4e38], [1e20, 0.0], [-1e300, 0.0]):
        answer = server.post("/v1/recommend", {"history": [11], "context": {"taste": taste}})
        assert (answer.status, answer.code) == (422, "wrong_features")
    found = server.post("/v1/recommend", {"history": [11], "context": {"taste": [1e9, -1e9]}}).json["results"][0]
    assert found["items"]
    assert all(item["score"] is not None for item in found["items"])


def test_features_decide_what_is_recommended_and_features_alone_are_no_cold_start(server: Server) -> None:
    def asked(**body: Any) -> dict[str, Any]:
        [result] = server.post("/v1/recommend", {"k": 8, **body}).json["results"]
        return {**result, "ids": [item["item_id"] for item in result["items"]]}

    bare = asked(history=[100, 101])
    known = [
        asked(history=[100, 101], user_features={"city": "Oslo", "age": 33}),
        asked(history=[100, 101], user_features={"city": "Rome", "age": None}),
        asked(history=[100, 101], context={"device": "phone"}),
        asked(history=[100, 101], context={"device": "tablet"}, user_features={"city": "Oslo"}),
    ]
    assert len({tuple(one["ids"]) for one in [bare, *known]}) == 5
    newcomer = asked(history=[], user_features={"city": "Oslo"})
    assert newcomer["source"] == "beam"
    assert newcomer["history_used"] == 0
    assert newcomer["ids"] != list(range(100, 108))
    cold_start = asked(history=[], user_features={"city": None})
    assert cold_start["source"] == "popularity"
    assert cold_start["ids"] == list(range(100, 108))
    assert asked(history=[], fallback="error", context={"device": "phone"})["source"] == "beam"
    assert server.post("/v1/recommend", {"history": [], "fallback": "error"}).code == "no_known_items"
    explained = asked(history=[], user_features={"city": "Oslo"}, explain=True)
    assert explained["ids"] == newcomer["ids"]
    assert explained["items"][0]["parts"]["tower"] == pytest.approx(explained["items"][0]["score"])

    many = {"requests": [{"history": [100, 101], "k": 8}, {"history": [], "k": 8, "user_features": {"city": "Oslo"}}]}
    results = server.post("/v1/recommend", many).json["results"]
    assert [[item["item_id"] for item in one["items"]] for one in results] == [bare["ids"], newcomer["ids"]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"user_features": {"town": "Oslo"}}, "user_features: there is no column 'town'; the model reads city, age"),
        ({"user_features": {"age": "old"}}, "user_features: expected age as a number or an ISO date"),
        ({"context": {"device": ["phone"]}}, "context: expected device as a text, a number or a boolean"),
    ],
)
def test_other_features_than_at_the_fit_are_refused(server: Server, given: dict[str, Any], message: str) -> None:
    refused = server.post("/v1/recommend", {"history": [100], **given})
    assert (refused.status, refused.code) == (422, "wrong_features")
    assert message in refused.json["error"]["message"]
    schema = server.get("/openapi.json").json["components"]["schemas"]["Recommend"]["properties"]
    assert schema["user_features"]["maxProperties"] == schema["context"]["maxProperties"] == 64


def test_the_model_lists_the_features_that_it_reads(server: Server) -> None:
    assert server.get("/v1/model").json["features"] == {
        "items": [
            {"name": "category", "kind": "category", "size": None},
            {"name": "cover", "kind": "vector", "size": 2},
        ],
        "users": [
            {"name": "city", "kind": "category", "size": None},
            {"name": "age", "kind": "number", "size": None},
        ],
        "context": [{"name": "device", "kind": "category", "size": None}],
    }


def tensor(name: str, *texts: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(texts), 1], "datatype": "BYTES", "data": list(texts)} | changes


def infer(server: Server, *tensors: dict[str, Any]) -> Answer:
    return server.post("/v2/models/beamtree/infer", {"inputs": list(tensors), "parameters": {"k": 8}})


def test_the_open_inference_protocol_takes_features_row_by_row(server: Server) -> None:
    inputs = server.get("/v2/models/beamtree").json["inputs"]
    assert [(one["name"], one["shape"]) for one in inputs] == [
        ("history", [-1, -1]),
        ("user_features", [-1, 1]),
        ("context", [-1, 1]),
    ]
    given: list[dict[str, Any]] = [
        {"history": [100], "user_features": {"city": "Oslo", "age": 33}, "context": {"device": "phone"}},
        {"history": [], "user_features": {"city": "Rome"}},
        {"history": [101]},
    ]
    answer = infer(
        server,
        tensor("context", '{"device": "phone"}', "", "{}"),
        tensor("history", "100", "", "101"),
        tensor("user_features", '{"city": "Oslo", "age": 33}', '{"city": "Rome"}', ""),
    )
    assert answer.status == 200, answer.body
    found = np.array(answer.json["outputs"][0]["data"]).reshape(3, 8).tolist()
    asked = {"requests": [{"k": 8, **request} for request in given]}
    results = server.post("/v1/recommend", asked).json["results"]
    assert found == [[str(item["item_id"]) for item in result["items"]] for result in results]
    assert answer.json["outputs"][3]["data"] == ["beam"] * 3


@pytest.mark.parametrize(
    ("features", "code", "said"),
    [
        (tensor("user_features", '{"town": "Oslo"}'), "wrong_features", "there is no column 'town'"),
        (tensor("user_features", "Oslo"), "invalid_request", "inputs[1].data: expected values by column as a JSON"),
        (tensor("context", '["phone"]'), "invalid_request", "inputs[1].data: expected values by column as a JSON"),
        (
            tensor("context", "{}", "{}"),
            "invalid_request",
            "inputs[1].shape: expected [1, 1], one JSON object for each",
        ),
        (tensor("context", "x" * 65_537), "invalid_request", "inputs[1].data: expected texts of at most 65,536"),
        (tensor("history", "101"), "invalid_request", "at most once each, user_features and context"),
        (tensor("user", "{}"), "invalid_request", "inputs[1].name"),
    ],
)
def test_features_that_cannot_be_read_are_refused(
    server: Server, features: dict[str, Any], code: str, said: str
) -> None:
    answer = infer(server, tensor("history", "100"), features)
    assert (answer.status, answer.code) == (422, code)
    assert said in answer.json["error"]["message"]
