"""Events over HTTP: sent twice, copied, forgotten, and kept from harm while the world around the server breaks."""

import itertools
import json
import resource
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from beamtree.artefact import load_artefact, save_artefact
from beamtree.cli.main import run
from tests.serving.conftest import StartServer
from tests.serving.models import save_model
from tests.serving.server import Answer, Server, wait_until

BEARER = {"Authorization": "Bearer sesame"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events") / "model"
    save_model(folder, 60)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "events.sqlite"


def event(user: int | str, item: int) -> dict[str, Any]:
    return {"events": [{"user_id": user, "item_id": item}]}


def post(server: Server, body: dict[str, Any], **headers: str) -> Answer:
    return server.post("/v1/events", body, **{name.replace("_", "-"): value for name, value in headers.items()})


def stored(store: Path) -> list[tuple[int | str, int]]:
    with sqlite3.connect(store) as connection:
        rows = connection.execute("SELECT user, item FROM events ORDER BY id").fetchall()
    connection.close()
    return rows


def beamtree(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["beamtree", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        run()
    assert not ended.value.code


def test_a_call_sent_again_with_its_key_is_taken_once(start: StartServer, model: Path, store: Path) -> None:
    server = start(model, "--events", str(store))
    first = post(server, event(1, 100), Idempotency_Key="a-1")
    assert (first.status, first.json) == (200, {"accepted": 1, "repeated": False, "unknown_ids": []})
    spelt_otherwise = json.dumps({"unknown": "ignore", **event(1, 100)}, indent=3).encode()
    again = server.call("POST", "/v1/events", body=spelt_otherwise, headers={"Idempotency-Key": "a-1"})
    assert (again.status, again.json) == (200, {"accepted": 1, "repeated": True})
    other = post(server, event(1, 101), Idempotency_Key="a-1")
    assert (other.status, other.code) == (422, "key_reused")
    assert post(server, event(1, 101), Idempotency_Key="a-2").json["repeated"] is False
    assert stored(store) == [(1, 100), (1, 101)]
    assert server.metric("beamtree_events_total") == 2
    server.kill()
    restarted = start(model, "--events", str(store))
    assert post(restarted, event(1, 101), Idempotency_Key="a-2").json["repeated"] is True, "keys outlive the server"
    for bad in ("", "two words", "x" * 256):
        assert (post(restarted, event(1, 102), Idempotency_Key=bad).status) == 422
    assert stored(store) == [(1, 100), (1, 101)]


@pytest.mark.parametrize("gone", ["deleted", "moved"])
def test_events_are_refused_once_their_file_is_gone(
    start: StartServer, model: Path, store: Path, tmp_path: Path, gone: str
) -> None:
    server = start(model, "--events", str(store))
    assert post(server, event(1, 100)).status == 200
    aside = tmp_path / "aside"
    aside.mkdir()
    for part in tmp_path.glob("events.sqlite*"):
        part.rename(aside / part.name) if gone == "moved" else part.unlink()
    refused = post(server, event(1, 101))
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "store_moved", "1")
    assert server.metric('beamtree_overloaded_total{reason="store_moved"}') == 1
    assert server.recommend(user_id=1)["history_used"] == 1, "recommendations go on"
    if gone == "moved":
        for part in aside.iterdir():
            part.rename(tmp_path / part.name)
        assert post(server, event(1, 102)).status == 200
        assert stored(store) == [(1, 100), (1, 102)]
    assert server.stop() == 0


def test_a_full_disk_refuses_and_keeps_what_was_accepted(start: StartServer, model: Path, store: Path) -> None:
    server = start(model, "--events", str(store), "--no-access-log")
    accepted = [item for item in range(100, 110) if post(server, event(1, item)).status == 200]
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    room = max(part.stat().st_size for part in store.parent.glob("events.sqlite*")) + 20_000
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (room, hard))
    refused = None
    for item in itertools.islice(itertools.cycle(range(100, 160)), 5000):
        answer = post(server, event(1, item))
        if answer.status != 200:
            refused = answer
            break
        accepted.append(item)
    assert refused is not None, "the disk never became full"
    assert (refused.status, refused.code) == (503, "store_failed")
    assert server.recommend(user_id=1, k=3)["source"] == "beam"
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert post(server, event(1, 150)).status == 200, "room again: events are taken again"
    server.kill()
    start(model, "--events", str(store))
    assert stored(store) == [(1, item) for item in [*accepted, 150]]


def test_a_foreign_lock_does_not_outlast_the_timeout(start: StartServer, model: Path, store: Path) -> None:
    server = start(model, "--events", str(store), "--timeout", "0.5")
    foreign = sqlite3.connect(store, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    refused = post(server, event(1, 100))
    assert (refused.status, refused.code) == (503, "timed_out")
    assert "none was taken" in refused.json["error"]["message"]
    foreign.execute("ROLLBACK")
    foreign.close()
    wait_until(lambda: post(server, event(1, 101)).status == 200, what="an event to be taken")
    assert {item for _, item in stored(store)} == {101}


def test_a_copy_is_made_while_events_come(
    start: StartServer, model: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy is sound, holds calls whole and in their order, and all that were confirmed before it was begun."""
    server = start(model, "--events", str(store))
    confirmed: list[int] = []
    is_over = threading.Event()

    def send_calls() -> None:
        for call in itertools.count():
            if is_over.is_set():
                return
            answer = post(server, {"events": [{"user_id": call, "item_id": item} for item in (100, 101, 102)]})
            assert answer.status == 200, answer.body
            confirmed.append(call)

    def is_further_than(calls: int) -> bool:
        return len(confirmed) > calls or sending.done()

    copy = tmp_path / "copy.sqlite"
    with ThreadPoolExecutor() as threads:
        sending = threads.submit(send_calls)
        try:
            for copies in range(1, 6):
                wait_until(partial(is_further_than, 5 * copies), what="more events")
                before = len(confirmed)
                beamtree(monkeypatch, "events", "backup", store, copy)
                rows = stored(copy)
                assert rows == [(call, item) for call in range(len(rows) // 3) for item in (100, 101, 102)]
                assert len(rows) // 3 >= before
                with closing(sqlite3.connect(copy)) as connection:
                    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        finally:
            is_over.set()
        sending.result()
    restored = start(model, "--events", str(copy))
    assert restored.recommend(user_id=0)["history_used"] == 3
    assert stored(store)[-1] == (confirmed[-1], 102), "the server went on"


def test_a_user_can_be_forgotten(
    start: StartServer, model: Path, shared_folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--histories", str(shared_folder / "log.parquet"), "--events", str(store))
    server = start(model, *options, token="sesame")
    for user, item in ((1, 103), (50, 100), (50, 101), (51, 102)):
        assert post(server, event(user, item)).status == 200
    assert server.post("/admin/forget", {"user_id": 50}).status == 401
    assert server.post("/admin/forget", {"user_id": "50"}, **BEARER).code == "wrong_id_type"
    assert server.post("/admin/forget", {"user": 50}, **BEARER).code == "invalid_request"
    forgotten = server.post("/admin/forget", {"user_id": 50}, **BEARER)
    assert (forgotten.status, forgotten.json) == (200, {"deleted_events": 2, "in_log": False})
    assert server.recommend(user_id=50)["user_known"] is False
    assert server.post("/admin/forget", {"user_id": 50}, **BEARER).json["deleted_events"] == 0
    assert server.post("/admin/forget", {"user_id": 1}, **BEARER).json == {"deleted_events": 1, "in_log": True}
    assert server.recommend(user_id=1)["history_used"] == 3, "what the log says of the user is not the store's"
    assert stored(store) == [(51, 102)]
    beamtree(monkeypatch, "events", "forget", store, "51")
    wait_until(lambda: server.recommend(user_id=51)["user_known"] is False, what="the server to forget")
    assert stored(store) == []


def test_without_events_or_token_nobody_can_be_forgotten(start: StartServer, model: Path, store: Path) -> None:
    assert start(model, "--events", str(store)).post("/admin/forget", {"user_id": 1}, **BEARER).status == 404
    assert start(model, token="sesame").post("/admin/forget", {"user_id": 1}, **BEARER).status == 404


def test_histories_come_from_the_file_and_one_file_is_left_when_the_server_stops(
    start: StartServer, model: Path, store: Path
) -> None:
    server = start(model, "--events", str(store))
    assert post(server, event("u", 100)).status == 200
    assert server.recommend(user_id="u")["history_used"] == 1
    assert post(server, event("u", 101)).status == 200
    assert server.recommend(user_id="u")["history_used"] == 2
    assert server.metric("beamtree_history_cache_bytes") > 0
    assert server.stop() == 0
    assert [path.name for path in store.parent.glob(f"{store.name}*")] == [store.name]
    again = start(model, "--events", str(store))
    assert again.metric("beamtree_history_cache_bytes") == 0
    assert again.recommend(user_id="u")["history_used"] == 2


def test_events_have_types_that_the_model_knows(start: StartServer, tmp_path: Path, store: Path) -> None:
    folder = tmp_path / "model"
    save_model(folder, 60)
    artefact = load_artefact(folder)
    weighed = artefact.config.log.model_copy(update={"event_weights": {"view": 1.0, "buy": 5.0, "shown": 0.0}})
    save_artefact(folder, replace(artefact, config=artefact.config.model_copy(update={"log": weighed}), version=""))
    server = start(folder, "--events", str(store))
    events = [
        {"user_id": "u", "item_id": 100, "event_type": "buy"},
        {"user_id": "u", "item_id": 101, "event_type": "shown"},
        {"user_id": "u", "item_id": 102},
    ]
    taken = post(server, {"events": events})
    assert taken.status == 200
    assert (taken.json["accepted"], taken.json["ignored"]) == (3, 1)
    assert stored(store) == [("u", 100), ("u", 102)], "what the model leaves out is in no history either"
    refused = post(server, {"events": [{"user_id": "u", "item_id": 100, "event_type": "bought"}]})
    assert refused.status == 422
    assert refused.json["error"]["code"] == "unknown_event_type"
    assert "fitted with the event types buy, shown, view; got 'bought'" in refused.json["error"]["message"]
    assert len(stored(store)) == 2
