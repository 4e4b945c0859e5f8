"""The Open Inference Protocol: what a client of KServe or Triton asks and gets."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beamtree.artefact import Artefact
from tests.serving.conftest import StartServer
from tests.serving.models import save_model
from tests.serving.server import Answer, Server

INFER = "/v2/models/beamtree/infer"


def infer(server: Server, rows: list[list[str]], **fields: Any) -> Answer:
    length = max(map(len, rows))
    filled = [row + [""] * (length - len(row)) for row in rows]
    tensor = {"name": "history", "shape": [len(rows), length], "datatype": "BYTES", "data": list(chain(*filled))}
    return server.post(INFER, {"inputs": [tensor], **fields})


def tensors(answer: Answer) -> dict[str, Any]:
    """The outputs as arrays of the shapes that they state."""
    assert answer.status == 200, answer.body
    return {output["name"]: np.array(output["data"]).reshape(output["shape"]) for output in answer.json["outputs"]}


def test_health_and_metadata(server: Server, artefact: Artefact) -> None:
    assert server.get("/v2").json.keys() == {"name", "version", "extensions"}
    assert server.get("/v2/health/live").json == {"live": True}
    assert server.get("/v2/health/ready").json == {"ready": True}
    assert server.get("/v2/models/beamtree/ready").json == {"ready": True}
    described = server.get("/v2/models/beamtree").json
    assert (described["name"], described["versions"]) == ("beamtree", [artefact.version])
    assert described["inputs"] == [{"name": "history", "datatype": "BYTES", "shape": [-1, -1]}]
    answered = infer(server, [["100"]]).json["outputs"]
    assert [(one["name"], one["datatype"], len(one["shape"])) for one in described["outputs"]] == [
        (one["name"], one["datatype"], len(one["shape"])) for one in answered
    ]
    assert server.get("/v2/models/other").code == "no_such_address"


def test_a_batch_gets_what_recommend_gives(server: Server, artefact: Artefact) -> None:
    histories = [[100, 101, 102], [140], [130, 131]]
    answer = infer(server, [[str(item) for item in row] for row in histories], id="abc", parameters={"k": 5, "beam": 9})
    said = answer.json
    assert (said["id"], said["model_name"], said["model_version"]) == ("abc", "beamtree", artefact.version)
    found = tensors(answer)
    asked = {"requests": [{"history": row, "k": 5, "beam": 9} for row in histories]}
    for row, result in enumerate(server.post("/v1/recommend", asked).json["results"]):
        assert found["item_id"][row].tolist() == [str(item["item_id"]) for item in result["items"]]
        assert found["score"][row].tolist() == [item["score"] for item in result["items"]]
    assert found["count"].tolist() == [5, 5, 5]
    assert found["source"].tolist() == ["beam"] * 3


def test_nested_rows_are_the_same_as_flat_ones(server: Server) -> None:
    flat = infer(server, [["100", "101"], ["140"]])
    tensor = {"name": "history", "shape": [2, 2], "datatype": "BYTES", "data": [["100", "101"], ["", "140"]]}
    nested = server.post(INFER, {"inputs": [tensor], "outputs": [{"name": "score"}]})
    assert list(tensors(nested)) == ["score"]
    np.testing.assert_array_equal(tensors(nested)["score"], tensors(flat)["score"])


def test_rows_with_fewer_items_are_filled_up(server: Server) -> None:
    everything = [str(item) for item in range(100, 158)]
    found = tensors(infer(server, [everything, ["100"], ["999"]], parameters={"k": 4, "exclude_seen": True}))
    assert found["count"].tolist() == [2, 4, 4]
    assert set(found["item_id"][0]) == {"158", "159", ""}
    assert found["score"][0, 2:].tolist() == [0.0, 0.0]
    assert found["source"].tolist() == ["beam", "beam", "popularity"]
    assert not found["score"][2].any()
    assert tensors(infer(server, [[]], parameters={"k": 2}))["source"].tolist() == ["popularity"]


def test_text_ids_and_another_name(start: StartServer, tmp_path: Path) -> None:
    save_model(tmp_path / "model", 60, text_ids=True)
    server = start(tmp_path / "model", "--model-name", "films")
    tensor = {"name": "history", "shape": [1, 1], "datatype": "BYTES", "data": ["i/100"]}
    answer = server.post("/v2/models/films/infer", {"inputs": [tensor], "parameters": {"k": 1}})
    [item] = tensors(answer)["item_id"][0]
    assert item == server.recommend(history=["i/100"], k=1)["items"][0]["item_id"]
    assert server.post(INFER, {"inputs": [tensor]}).code == "no_such_address"


@pytest.mark.parametrize(
    ("tensor", "code", "field"),
    [
        ({"shape": [1, 3]}, "invalid_request", "inputs[0].shape"),
        ({"shape": [0, 2]}, "invalid_request", "inputs[0].shape[0]"),
        ({"shape": [2]}, "invalid_request", "inputs[0].shape[1]"),
        ({"shape": [10**15, 0], "data": []}, "limit_exceeded", "inputs[0].shape[0]"),
        ({"shape": [1, 5001], "data": 5000 * [""] + ["100"]}, "limit_exceeded", "inputs[0].shape[1]"),
        ({"data": ["100", 101]}, "invalid_request", "inputs[0].data"),
        ({"data": ["100", ["101", ["102"]]], "shape": [1, 3]}, "invalid_request", "inputs[0].data"),
        ({"data": ["100", "x" * 513]}, "invalid_request", "inputs[0].data"),
        ({"datatype": "INT64", "data": [100, 101]}, "invalid_request", "inputs[0].datatype"),
        ({"name": "items"}, "invalid_request", "inputs[0].name"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused(server: Server, tensor: dict[str, Any], code: str, field: str) -> None:
    sent = {"name": "history", "shape": [1, 2], "datatype": "BYTES", "data": ["100", "101"]} | tensor
    answer = server.post(INFER, {"inputs": [sent]})
    assert (answer.status, answer.code) == (422, code)
    assert [detail["field"] for detail in answer.json["error"]["details"]] == [field]


def test_refusals_are_those_of_recommend(server: Server) -> None:
    assert infer(server, [["abc"]]).code == "wrong_id_type"
    assert infer(server, [["100"]], parameters={"k": 5000}).code == "limit_exceeded"
    assert infer(server, [["100"]], parameters={"N": 3}).code == "invalid_request"
    assert infer(server, [["100"]], outputs=[{"name": "vector"}]).code == "invalid_request"
    features = {"name": "user_features", "shape": [1, 1], "datatype": "BYTES", "data": ['{"city": "Oslo"}']}
    history = {"name": "history", "shape": [1, 1], "datatype": "BYTES", "data": ["100"]}
    assert server.post(INFER, {"inputs": [history, features]}).code == "wrong_features"
    assert infer(server, [["100"]], parameters={"user_features": {"city": "Oslo"}}).code == "invalid_request"
    assert server.post(INFER, {"inputs": [features]}).code == "invalid_request"
    assert infer(server, [["999"]], parameters={"fallback": "error"}).code == "no_known_items"
    assert infer(server, [["999"]], parameters={"unknown": "refuse"}).code == "unknown_ids"
    assert infer(server, [["100"]] * 65).code == "limit_exceeded"
    assert server.call("POST", INFER, body=b"{").code == "bad_json"
    assert server.call("POST", INFER, body=b"{}", headers={"Content-Type": "text/plain"}).code == "not_json"
    assert server.get(INFER).code == "wrong_method"


def test_a_server_short_of_memory_refuses_and_counts(start: StartServer, shared_folder: Path) -> None:
    server = start(shared_folder / "model", "--min-free-memory", str(2**62))
    heavy = infer(server, [["100"]] * 60, parameters={"k": 40})
    assert (heavy.status, heavy.code, heavy.headers["retry-after"]) == (503, "low_memory", "5")
    assert infer(server, [["100"], ["999"]], parameters={"k": 3}).status == 200
    assert server.metric("beamtree_recommendations_total") == 2
    assert server.metric("beamtree_fallbacks_total") == server.metric("beamtree_unknown_ids_total") == 1
    assert server.metric('beamtree_overloaded_total{reason="low_memory"}') == 1
