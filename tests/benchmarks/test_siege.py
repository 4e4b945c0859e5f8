"""The siege counts what innocent clients notice, and adds up the worst of all attacks."""

from pathlib import Path

from benchmarks.siege import attacks, overall
from benchmarks.siege_harness import besieged, connect, hammer, post, save_besieged_model


def test_the_worst_of_all_attacks_is_held_against_the_bounds() -> None:
    calm = {"innocent_failed": 0, "memory_growth_mb": 4.0, "health_p99_ms": 20.0, "light_over_alone": 2.0}
    storm = {"innocent_failed": 1, "memory_growth_mb": 2.0, "health_p99_ms": 30.0, "servers_died": 0}
    assert overall({"calm": calm})["held"]
    assert overall({"calm": calm, "storm": storm, "again": storm}) == {
        "innocent_failed": 2,
        "memory_growth_mb": 4.0,
        "health_p99_ms": 30.0,
        "light_over_alone": 2.0,
        "servers_died": 0,
        "held": False,
    }


def test_an_overloaded_server_must_not_answer_less() -> None:
    steady = {"innocent_failed": 0, "successes_ratio": 0.97}
    collapsed = {"innocent_failed": 0, "successes_ratio": 0.6}
    assert overall({"steady": steady})["held"]
    both = overall({"collapsed": collapsed, "steady": steady})
    assert (both["successes_ratio"], both["held"]) == (0.6, False)


def test_every_file_of_attacks_has_one() -> None:
    assert attacks().keys() == {
        "failing_requests",
        "filter_cache",
        "idle_sockets",
        "stalled_log",
        "slow_readers",
        "heavy_batches",
        "new_users",
        "copies_in_place",
        "hostile_models",
    }
    assert all(map(callable, attacks().values()))


def test_innocent_clients_are_watched_beside_an_attack(tmp_path: Path) -> None:
    save_besieged_model(tmp_path / "model")
    with besieged(tmp_path / "model", log=tmp_path / "log") as (server, figures):
        assert not figures
        statuses = hammer(server.port, [b"{}"], connections=2, seconds=0.5)
        assert not hammer(server.port, [b"{}"], connections=2, seconds=0.0, settling_seconds=0.2)
        connection = connect(server.port)
        status, answer = post(connection, "/v1/recommend", {"history": [1], "k": 3})
        connection.close()
        assert server.metric('beamtree_requests_total{method="POST",route="/v1/recommend",status="422"}') > 0
    assert (status, len(answer["results"][0]["items"])) == (200, 3)
    assert statuses.keys() == {"422"}
    assert figures["innocent_asked"] > 10
    assert (figures["innocent_failed"], figures["servers_died"]) == (0, 0)
    assert not server.is_alive


def test_a_server_that_dies_is_counted(tmp_path: Path) -> None:
    save_besieged_model(tmp_path / "model")
    with besieged(tmp_path / "model", log=tmp_path / "log") as (server, figures):
        server.process.kill()
        server.process.wait()
        hammer(server.port, [b"{}"], connections=1, seconds=0.3)
    assert figures["servers_died"] == 1
    assert figures["innocent_failed"] > 0
