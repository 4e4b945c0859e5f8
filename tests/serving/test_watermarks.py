"""With little memory or disk left, the server refuses what would use it up, and answers the rest."""

import sqlite3
from pathlib import Path

import pytest

from beamtree.serving.api_error import ApiError
from beamtree.serving.schemas.recommend_body import Recommend
from beamtree.serving.watermarks import Watermarks
from tests.serving.conftest import StartServer

MORE_THAN_ANY_MACHINE_HAS = str(10**18)


def test_large_calls_are_refused_where_memory_is_short(start: StartServer, shared_folder: Path) -> None:
    server = start(shared_folder / "model", "--min-free-memory", MORE_THAN_ANY_MACHINE_HAS)
    assert len(server.recommend(history=[100], k=50)["items"]) == 50
    heavy = ({"history": [100], "k": 101}, {"history": [100], "explain": True}, {"requests": [{"history": [100]}] * 6})
    for body in heavy:
        refused = server.post("/v1/recommend", body)
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "low_memory", "5")
    assert server.metric('beamtree_overloaded_total{reason="low_memory"}') == len(heavy)
    assert server.metric("beamtree_free_memory_bytes") > 0


def test_events_are_refused_where_the_disk_is_nearly_full(
    start: StartServer, shared_folder: Path, tmp_path: Path
) -> None:
    store = tmp_path / "events.sqlite"
    server = start(shared_folder / "model", "--events", str(store), "--min-free-disk", MORE_THAN_ANY_MACHINE_HAS)
    refused = server.post("/v1/events", {"events": [{"user_id": 1, "item_id": 100}]})
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "low_disk", "5")
    assert server.recommend(history=[100], k=3)["source"] == "beam"
    assert server.metric("beamtree_free_disk_bytes") > 0
    assert server.stop() == 0
    connection = sqlite3.connect(store)
    assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)
    connection.close()


def test_enough_is_enough_and_the_unknown_is_no_reason(tmp_path: Path) -> None:
    def with_free_memory(free: int) -> Watermarks:
        return Watermarks(min_free_memory=100, min_free_disk=0, store=None, measure_memory=lambda: free)

    large = [Recommend(history=[1], k=1000)]
    with pytest.raises(ApiError, match="must stay so"):
        with_free_memory(99).refuse_heavy(large)
    with_free_memory(100).refuse_heavy(large)
    lost = Watermarks(min_free_memory=0, min_free_disk=10**18, store=tmp_path / "nowhere" / "events.sqlite")
    lost.refuse_events()
