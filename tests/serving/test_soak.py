"""The short version of `make soak`: every fault once, and a soak that would notice."""

import sqlite3
from pathlib import Path

import pytest

from tests.serving.soak import Soak, has_held, is_killed_after


def test_one_round_of_faults_loses_nothing_and_a_loss_would_be_seen(tmp_path: Path) -> None:
    soak = Soak(tmp_path)
    figures = soak.run(seconds=0)
    assert has_held(figures, max_growth_mb=100.0), figures
    assert (figures["rounds"], figures["kills"]) == (1, 1)
    assert figures["events_confirmed"] >= 600
    assert figures["recommendations"] >= 600
    assert figures["refusals"].keys() >= {"timed_out", "store_failed", "store_moved"}
    with sqlite3.connect(soak.events) as connection:
        connection.execute("UPDATE events SET item = 1 WHERE user = 0 AND item = 0")
    connection.close()
    changed = soak._figures()
    assert (changed["events_lost"], changed["events_doubled"]) == (1, 1)
    assert not has_held(changed, max_growth_mb=100.0)


def test_each_server_lives_longer_than_the_one_before() -> None:
    assert [rounds for rounds in range(1, 20) if is_killed_after(rounds)] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("broken", ["events_lost", "events_doubled", "failures", "servers_died", "memory_growth_mb"])
def test_each_figure_can_end_a_soak(broken: str) -> None:
    well = dict.fromkeys(("events_lost", "events_doubled", "failures", "servers_died"), 0) | {"memory_growth_mb": 0.0}
    assert has_held(well, max_growth_mb=0.5)
    assert not has_held(well | {broken: 1}, max_growth_mb=0.5)
