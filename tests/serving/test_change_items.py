"""Items join and leave the catalogue of a running server, at once, on disk, and for its replicas."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from beamtree.artefact import Artefact, load_artefact, save_artefact
from beamtree.catalogue.folder import claimed_for_update
from tests.serving.conftest import StartServer
from tests.serving.models import random_artefact, save_model
from tests.serving.server import Answer, Server, wait_until

BEARER = "Bearer sesame"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    artefact = random_artefact(60, seed=1, parts=("tower", "memory"))
    table = artefact.item_table.with_columns(since=pl.lit(date(2020, 1, 1)))
    save_artefact(tmp_path / "model", Artefact(**(vars(artefact) | {"item_table": table})))
    return tmp_path / "model"


@pytest.fixture
def server(start: StartServer, model: Path) -> Server:
    return start(model, "--watch-seconds", "0", token="sesame")


def change(server: Server, body: Any) -> Answer:
    return server.post("/admin/items", body, Authorization=BEARER)


def recommended(server: Server, history: list[int], **options: Any) -> list[int]:
    answer = server.post("/v1/recommend", {"history": history, "k": 100, "exclude_seen": False, **options})
    assert answer.status == 200, answer.body
    return [item["item_id"] for item in answer.json["results"][0]["items"]]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_items_join_and_leave_at_once_and_on_disk(start: StartServer, server: Server, model: Path) -> None:
    before = server.get("/v1/model").json["model_version"]
    new = [
        {"item_id": 900, "category": "War", "title": "New", "year": 2020, "tags": ["odd"], "since": "2024-02-29"},
        {"item_id": 901, "price": 2, "category": None},
    ]
    done = change(server, {"add": new, "remove": [100, 101]})
    assert done.status == 200, done.body
    counts = {name: done.json[name] for name in ("added", "reinstated", "removed", "items", "leaves", "changed")}
    assert counts == {"added": 2, "reinstated": 0, "removed": 2, "items": 60, "leaves": 64, "changed": True}
    assert done.json["previous_version"] == before
    for history in ([], [100, 900], [102]):
        found = recommended(server, history)
        assert len(found) == 60
        assert {900, 901} <= set(found)
        assert not {100, 101} & set(found)
    assert server.get("/v1/model").json["items"] == 60
    assert server.get("/v1/items/900").json["columns"] == {
        "category": "War", "title": "New", "year": 2020, "tags": ["odd"], "price": None, "since": "2024-02-29",
    }  # fmt: skip
    assert [item["item_id"] for item in server.get("/v1/items?search=new").json["items"]] == [900]
    assert server.get("/v1/items?search=100").json["matches"] == 0
    assert load_artefact(model).version == done.json["model_version"]
    assert server.metric("beamtree_model_folder_differs") == 0
    assert recommended(start(model), [102]) == recommended(server, [102]), "a replica reads the same"
    back = change(server, {"add": [{"item_id": 101}], "remove": [100, 901]}).json
    assert (back["reinstated"], back["removed"]) == (1, 1)
    assert change(server, {"remove": [901]}).json["changed"] is False
    assert server.post("/admin/rollback", Authorization=BEARER).status == 200
    rolled_back = change(server, {"remove": [105]})
    assert (rolled_back.status, rolled_back.code) == (409, "rolled_back")


def test_replicas_that_watch_the_folder_follow(start: StartServer, model: Path) -> None:
    servers = [start(model, "--watch-seconds", "0.05", token="sesame") for _ in range(2)]
    version = change(servers[0], {"remove": [110]}).json["model_version"]
    wait_until(lambda: servers[1].get("/v1/model").json["model_version"] == version, what="the other replica")
    assert 110 not in recommended(servers[1], [102])


def test_a_newer_model_in_the_folder_takes_over_first(server: Server, model: Path) -> None:
    save_model(model, 70, seed=2)
    done = change(server, {"remove": [100]}).json
    assert done["items"] == 69
    assert load_artefact(model).tree.removed.tolist() == [0]


def test_what_cannot_be_done_is_refused_and_nothing_changes(server: Server, model: Path) -> None:
    before, answer = contents(model), recommended(server, [102])
    refused: list[tuple[Any, int, str, str]] = [
        ({"add": [{"item_id": 105}]}, 422, "invalid_items", "exist already, the first is 105"),
        (
            {"add": [{"item_id": 900, "colour": "red"}]},
            422,
            "invalid_items",
            "not fitted with: colour. It knows item_id",
        ),
        ({"add": [{"item_id": 900, "size": 3}]}, 422, "invalid_items", "not fitted with: size"),
        ({"add": [{"item_id": 900, "year": "old"}]}, 422, "invalid_items", "column year as Int64"),
        ({"add": [{"item_id": 900, "year": 1.5}]}, 422, "invalid_items", "column year as Int64"),
        ({"add": [{"item_id": 900, "price": True}]}, 422, "invalid_items", "column price as Float64"),
        ({"add": [{"item_id": 900, "title": 5}]}, 422, "invalid_items", "column title as String"),
        ({"add": [{"item_id": 901, "title": ["x"]}]}, 422, "invalid_items", "title"),
        ({"add": [{"item_id": 901, "tags": "odd"}]}, 422, "invalid_items", "column tags as List"),
        ({"add": [{"item_id": 901, "since": "soon"}]}, 422, "invalid_items", "column since as Date"),
        ({"add": [{"item_id": 901, "year": 2**63 - 1}, {"item_id": 902, "year": "x"}]}, 422, "invalid_items", "year"),
        ({"add": [{"item_id": 901, "tags": {"a": 1}}]}, 422, "invalid_request", "tags"),
        ({"add": [{"item_id": 901}, {"item_id": 901}]}, 422, "invalid_items", "901 occurs 2 times"),
        ({"add": [{"item_id": "x"}]}, 422, "wrong_id_type", "are integers, got 'x'"),
        ({"add": [{"title": "x"}]}, 422, "invalid_request", "item_id"),
        ({"remove": [9999]}, 422, "unknown_ids", "first is 9999"),
        ({"remove": ["100"]}, 422, "wrong_id_type", "are integers"),
        ({"add": [{"item_id": 901}], "remove": [901]}, 422, "unknown_ids", "901"),
        ({"remove": list(range(100, 160))}, 422, "invalid_items", "would be removed"),
        ({"remove": [100] * 1001}, 422, "limit_exceeded", "at most 1,000 items in one call"),
        ({"delete": [100]}, 422, "invalid_request", "no such field"),
        ([], 422, "invalid_request", ""),
    ]
    for body, status, code, message in refused:
        found = change(server, body)
        assert found.status == status, (body, found.body)
        assert found.code == code, (body, found.body)
        assert message in found.json["error"]["message"], found.json
        assert str(model) not in found.body.decode()
        assert contents(model) == before, body
    assert recommended(server, [102]) == answer
    unnamed = server.post("/admin/items", {"remove": [100]}, Authorization="Bearer nope")
    assert (unnamed.status, unnamed.code) == (401, "not_allowed")


def test_a_folder_that_cannot_be_written_to_is_left_as_it_is(server: Server, model: Path) -> None:
    answer = recommended(server, [102])
    (model / f".writing.{server.process.pid}.tmp").touch()  # where the server would write
    before = contents(model)
    refused = change(server, {"remove": [102]})
    assert (refused.status, refused.code) == (409, "model_refused")
    assert "Could not write to the model folder" in refused.json["error"]["message"]
    assert contents(model) == before
    assert recommended(server, [102]) == answer
    (model / f".writing.{server.process.pid}.tmp").unlink()
    with claimed_for_update(model):
        busy = change(server, {"remove": [102]})
    assert (busy.status, busy.code) == (409, "being_updated")
    assert busy.headers["retry-after"] == "1"
    assert change(server, {"remove": [102]}).status == 200


def test_the_interface_is_described(server: Server) -> None:
    document = server.get("/openapi.json").json
    route = document["paths"]["/admin/items"]["post"]
    assert {"200", "401", "409", "422"} <= route["responses"].keys()
    body = document["components"]["schemas"]["ItemsBody"]["properties"]
    assert body["add"]["maxItems"] == body["remove"]["maxItems"] == 1000
    example = route["requestBody"]["content"]["application/json"]["example"]
    assert change(server, example).status == 200, json.dumps(example)
