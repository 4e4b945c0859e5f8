"""A new model takes over without a lost request; a broken one does not take over at all."""

import json
import signal
import threading
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from beamtree.artefact import Artefact, load_artefact, save_artefact
from beamtree.config import RetrievalSettings
from beamtree.data.vocabulary import Id
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import RecommendOptions, RecommendRequest
from tests.serving.conftest import StartServer
from tests.serving.models import random_artefact, save_model
from tests.serving.server import Server, ask, wait_until

BEARER = "Bearer sesame"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tmp_path / "model", 60, seed=1)
    return tmp_path / "model"


@pytest.fixture
def changeable(start: StartServer, model: Path) -> Server:
    """A server with admin routes that looks at its folder only when told to."""
    return start(model, "--watch-seconds", "0", token="sesame")


def best_for(artefact: Artefact, history: list[int]) -> list[Id]:
    request = RecommendRequest(history=history, options=RecommendOptions(k=5, beam=8, exclude_seen=False))
    return Recommender(artefact).recommend([request])[0].items


def test_requests_go_on_while_models_change(start: StartServer, model: Path) -> None:
    history = [110, 120]
    server = start(model, "--watch-seconds", "0.05")
    body = json.dumps({"history": history, "k": 5, "exclude_seen": False}).encode()
    expected: dict[str, list[Id]] = {}
    answered: list[tuple[int, str, list[int]]] = []
    stop = threading.Event()

    def keep_asking() -> None:
        connection = server.connect()
        while not stop.is_set():
            answer = ask(connection, "POST", "/v1/recommend", body=body)
            content = answer.json
            items = [item["item_id"] for item in content["results"][0]["items"]] if answer.status == 200 else []
            answered.append((answer.status, content.get("model_version", ""), items))
        connection.close()

    def wait_for_answers_of(version: str) -> None:
        wait_until(lambda: bool(answered) and answered[-1][1] == version, what="answers of the new model")

    clients = [threading.Thread(target=keep_asking) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        for seed in (1, 2, 3, 4):
            save_model(model, 60, seed=seed)
            artefact = load_artefact(model)
            expected[artefact.version] = best_for(artefact, history)
            wait_for_answers_of(artefact.version)
    finally:
        stop.set()
        for client in clients:
            client.join()
    assert len(expected) == 4
    assert {status for status, _, _ in answered} == {200}
    for _, version, items in answered:
        assert items == expected[version]
    assert server.metric("beamtree_reload_failures_total") == 0
    assert server.metric("beamtree_model_changes_total") == 4


def break_weights(model: Path) -> None:
    """Overwrite the file in place, as a careless copy would."""
    [weights] = model.glob("weights-*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")


def break_manifest(model: Path) -> None:
    (model / "manifest.json").write_text("{")


def remove_manifest(model: Path) -> None:
    (model / "manifest.json").unlink()


def save_other_tree(model: Path) -> None:
    artefact = random_artefact(60, seed=9)
    save_artefact(model, Artefact(**(vars(artefact) | {"tree": random_artefact(50).tree})))


def save_date_beyond_all_years(model: Path) -> None:
    """A column that loads, and panics when it is shown."""
    artefact = random_artefact(60, seed=9)
    dates = pl.Series("when", 60 * [2**31 - 1], dtype=pl.Int32).cast(pl.Date)
    save_artefact(model, Artefact(**(vars(artefact) | {"item_table": artefact.item_table.with_columns(dates)})))


def test_broken_models_are_refused_and_the_old_one_goes_on(changeable: Server, model: Path) -> None:
    before = load_artefact(model).version
    request = {"history": [110, 120], "k": 5}
    answer = changeable.post("/v1/recommend", request).json["results"]
    ways = (break_weights, break_manifest, remove_manifest, save_other_tree, save_date_beyond_all_years)
    for number, spoil in enumerate(ways, start=1):
        spoil(model)
        refused = changeable.post("/admin/reload", Authorization=BEARER)
        assert (refused.status, refused.code) == (409, "model_refused"), spoil.__name__
        assert str(model) not in refused.body.decode()
        ready = changeable.get("/readyz")
        assert ready.status == 200
        assert ready.json["model_version"] == before
        assert ready.json["last_reload_failure"]["message"] == refused.json["error"]["message"]
        assert changeable.metric("beamtree_reload_failures_total") == number
        assert changeable.metric("beamtree_model_folder_differs") == 1
        assert changeable.post("/v1/recommend", request).json["results"] == answer, spoil.__name__
    save_model(model, 60, seed=2)
    reloaded = changeable.post("/admin/reload", Authorization=BEARER).json
    assert (reloaded["changed"], reloaded["previous_version"]) == (True, before)
    assert changeable.get("/readyz").json["last_reload_failure"] is None
    assert changeable.metric("beamtree_model_folder_differs") == 0


def test_other_settings_of_the_same_model_are_taken_up_on_sighup(changeable: Server, model: Path) -> None:
    before = changeable.get("/v1/model").json
    retrieval = {"beam_width": 77, "exclude_seen": False}
    artefact = load_artefact(model)
    settings = artefact.config.model_copy(update={"retrieval": RetrievalSettings(**retrieval)})
    save_artefact(model, replace(artefact, config=settings))
    assert changeable.metric("beamtree_model_folder_differs") == 1
    changeable.process.send_signal(signal.SIGHUP)
    wait_until(lambda: changeable.get("/v1/model").json["defaults"]["beam"] == 77, what="the new settings")
    after = changeable.get("/v1/model").json
    assert after["defaults"]["exclude_seen"] is False
    assert after["model_version"] != before["model_version"]
    (model / "manifest.json").unlink()
    changeable.process.send_signal(signal.SIGHUP)
    wait_until(lambda: changeable.metric("beamtree_reload_failures_total") == 1, what="a refused model")
    assert changeable.get("/v1/model").json["model_version"] == after["model_version"]
    assert changeable.metric("beamtree_watcher_heartbeat_seconds") == 0, "nobody watches here"


def test_rollback_goes_to_the_previous_model_and_back(changeable: Server, model: Path) -> None:
    first = load_artefact(model).version
    nothing = changeable.post("/admin/rollback", Authorization=BEARER)
    assert (nothing.status, nothing.code) == (409, "nothing_to_roll_back")
    assert changeable.post("/admin/reload", Authorization=BEARER).json["changed"] is False
    save_model(model, 70, seed=2)
    second = changeable.post("/admin/reload", Authorization=BEARER).json["model_version"]
    assert changeable.get("/v1/model").json["items"] == 70
    back = changeable.post("/admin/rollback", Authorization=BEARER).json
    assert (back["model_version"], back["previous_version"]) == (first, second)
    assert changeable.get("/v1/items/169").status == 404
    assert changeable.get("/v1/model").json["items"] == 60
    forth = changeable.post("/admin/rollback", Authorization=BEARER).json
    assert (forth["model_version"], forth["previous_version"]) == (second, first)
    assert changeable.metric(f'beamtree_model_info{{version="{second}"}}') == 1
    assert changeable.metric(f'beamtree_model_info{{version="{first}"}}') == 0


def test_admin_routes_need_the_token(changeable: Server) -> None:
    for given in ("", "Bearer", "Bearer sesam", "Bearer sesame2", "sesame", "Basic c2VzYW1l", "Bearer ses\xe4me"):
        for route in ("/admin/reload", "/admin/rollback"):
            answer = changeable.post(route, Authorization=given)
            assert (answer.status, answer.code) == (401, "not_allowed")
            assert answer.headers["www-authenticate"] == "Bearer"


def test_a_watched_rollback_stays_until_another_model_comes(start: StartServer, model: Path) -> None:
    server = start(model, "--watch-seconds", "0.05", token="sesame")
    first = load_artefact(model).version
    save_model(model, 60, seed=2)
    second = load_artefact(model).version
    wait_until(lambda: server.get("/readyz").json["model_version"] == second, what="the second model")
    server.post("/admin/rollback", Authorization=BEARER)
    break_manifest(model)
    wait_until(lambda: server.get("/readyz").json["last_reload_failure"] is not None, what="a refused model")
    assert server.get("/readyz").json["model_version"] == first
    save_model(model, 60, seed=3)
    third = load_artefact(model).version
    wait_until(lambda: server.get("/readyz").json["model_version"] == third, what="the third model")
    beat = server.metric("beamtree_watcher_heartbeat_seconds")
    assert beat > 0
    wait_until(lambda: server.metric("beamtree_watcher_heartbeat_seconds") > beat, what="another look at the folder")
