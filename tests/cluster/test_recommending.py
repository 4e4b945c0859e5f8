"""Recommending for everybody: each user once, whoever is killed, and nothing twice after a restart."""

import os
import re
import signal
import subprocess
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from rich.console import Console

from beamtree import DeepTreeRetriever
from beamtree.cluster.connection import Cluster
from beamtree.cluster.recommending import Job, ShardDone, recommend_everybody
from beamtree.config import LogSettings
from beamtree.errors import DataError, InputError
from beamtree.retrieval.request import RecommendOptions
from tests.cli.beamtree_command import Command
from tests.cluster.conftest import wait_for_free_cpus
from tests.cluster.test_learning import log_of_rings
from tests.fitting.test_request_offsets import fitted, log_by_city

SHARDS = 6
OPTIONS = RecommendOptions(k=4)
LISTS = {3: [1, 2, 50], 8: [45]}
"""Of items that these users have not had."""


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    DeepTreeRetriever(preset="instant").fit(log_of_rings(), progress=False).save(folder)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log in three files that all have rows of every user, and a table of lists."""
    folder = tmp_path_factory.mktemp("log")
    (folder / "log").mkdir()
    log = log_of_rings()
    for part in range(3):
        log.filter(pl.col("timestamp") % 3 == part).write_parquet(folder / "log" / f"{part}.parquet")
    pl.DataFrame({"user_id": list(LISTS), "allow": list(LISTS.values())}).write_parquet(folder / "lists.parquet")
    return folder


@pytest.fixture
def job(model: Path, files: Path) -> Job:
    return Job(model, str(files / "log"), LogSettings(), OPTIONS)


def written(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "part-*.parquet").sort("user_id", "rank")


def expected(model: Path) -> pl.DataFrame:
    made = DeepTreeRetriever.load(model).recommend(interactions=log_of_rings(), k=4)
    return made.sort("user_id", "rank")


def own_processes(title: str) -> list[int]:
    """Processes with this title that were started, in whatever way, by this one: nobody else's."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    parent = {int(pid): int(above) for pid, above, *_ in rows}

    def is_ours(process: int) -> bool:
        return process == os.getpid() or (process in parent and is_ours(parent[process]))

    return [int(pid) for pid, _, *said in rows if said and said[0].startswith(title) and is_ours(int(pid))]


def test_killed_actors_leave_every_user_exactly_once(two_nodes: Cluster, job: Job, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(done: ShardDone | None, _total: int) -> None:
        """All actors that have started, with SIGKILL, when one has finished a shard and has the next two."""
        if done is not None and not killed:
            killed.extend(own_processes("ray::ShardRecommender"))
            for number in killed:
                os.kill(number, signal.SIGKILL)

    made = recommend_everybody(two_nodes, job, tmp_path / "out", num_shards=SHARDS, on_shard=kill)
    assert killed  # two, unless the other one was still starting
    assert (made.shards, made.found, made.users, made.cold) == (SHARDS, 0, 100, 0)
    assert_frame_equal(written(tmp_path / "out"), expected(job.model))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        *(f"part-{shard:05d}.parquet" for shard in range(SHARDS)),
    ]


def test_a_restart_makes_what_is_missing(nodes: Any, two_nodes: Cluster, job: Job, tmp_path: Path) -> None:
    """And the run that was stopped leaves nothing behind that would still hold a CPU."""

    class Stopped(Exception):
        pass

    finished: list[int] = []

    def stop(done: ShardDone | None, _total: int) -> None:
        if done is not None:
            finished.append(done.shard)
        if len(finished) == 2:
            raise Stopped

    with pytest.raises(Stopped) as stopped:
        recommend_everybody(two_nodes, job, tmp_path / "out", num_shards=SHARDS, on_shard=stop)
    wait_for_free_cpus(nodes)
    assert stopped.tb is not None  # as a notebook keeps it, with all that its frames refer to
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    made = recommend_everybody(two_nodes, job, tmp_path / "out", num_shards=99)
    assert 2 <= made.found < SHARDS
    assert made.shards == SHARDS
    kept = {f"part-{shard:05d}.parquet" for shard in finished}
    assert {name: time for name, time in before.items() if name in kept} == {
        name: (tmp_path / "out" / name).stat().st_mtime_ns for name in kept
    }
    assert_frame_equal(written(tmp_path / "out"), expected(job.model))
    again = recommend_everybody(two_nodes, job, tmp_path / "out")
    assert (again.shards, again.found, again.users) == (SHARDS, SHARDS, 0)


def test_a_folder_of_something_else_is_refused(two_nodes: Cluster, job: Job, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(InputError, match="holds other files"):
        recommend_everybody(two_nodes, job, tmp_path / "other")
    recommend_everybody(two_nodes, job, tmp_path / "out", num_shards=1)
    wider = Job(job.model, job.log, job.settings, RecommendOptions(k=5))
    with pytest.raises(InputError, match="something else than recommendations of this model"):
        recommend_everybody(two_nodes, wider, tmp_path / "out")


def test_a_bad_row_is_told_as_everywhere(two_nodes: Cluster, job: Job, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("user_id,item_id,timestamp\n1,2,soon\n")
    bad = Job(job.model, str(tmp_path / "bad.csv"), job.settings, OPTIONS)
    with pytest.raises(DataError, match=r"bad\.csv, line 2.*soon"):
        recommend_everybody(two_nodes, bad, tmp_path / "out")


def test_the_command_with_lists_for_some_users(
    two_nodes: Cluster, model: Path, files: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal it shows shards, users, and the time that is left."""
    screen = StringIO()
    terminal = Console(file=screen, force_terminal=True, color_system=None, width=120)
    monkeypatch.setattr("beamtree.cli.recommend.messages", terminal)
    out, alone = tmp_path / "out", tmp_path / "alone.parquet"
    what = ["recommend", str(model), "--log", str(files / "log"), "-k", "4"]
    what += ["--allow-lists", str(files / "lists.parquet")]
    done = command(*what, "--out", str(out), "--cluster", two_nodes.address, "--workers", "2")
    assert done.code == 0, done.err
    assert "for 100 users; 8 files in" in done.message
    assert re.search(r"[1-8] of 8 shards, \d+ users \d:\d\d:\d\d left \d:\d\d:\d\d", screen.getvalue())
    assert command(*what, "--out", str(alone)).code == 0
    assert_frame_equal(written(out), pl.read_parquet(alone).sort("user_id", "rank"))
    for user, allowed in LISTS.items():
        found = written(out).filter(pl.col("user_id") == user)["item_id"].to_list()
        assert found
        assert set(found) <= set(allowed)


def test_the_command_with_a_user_table(
    two_nodes: Cluster, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users get what the same command without a cluster gives them, by the table that is given, a relative path."""
    monkeypatch.chdir(tmp_path)
    log, users = log_by_city()
    fitted(log, users).save(tmp_path / "model")
    log.write_csv(tmp_path / "log.csv")
    moved = users.with_columns(pl.col("city").reverse())
    moved.write_csv(tmp_path / "moved.csv")
    what = ["recommend", str(tmp_path / "model"), "--log", str(tmp_path / "log.csv"), "-k", "4"]
    told = [*what, "--user-table", "moved.csv"]
    on_cluster = ["--cluster", two_nodes.address, "--workers", "2"]
    assert command(*told, "--out", str(tmp_path / "out"), *on_cluster).code == 0
    assert command(*told, "--out", str(tmp_path / "alone.parquet")).code == 0
    assert command(*what, "--out", str(tmp_path / "untold.parquet")).code == 0
    alone = pl.read_parquet(tmp_path / "alone.parquet").sort("user_id", "rank")
    assert_frame_equal(written(tmp_path / "out"), alone)
    assert not alone.equals(pl.read_parquet(tmp_path / "untold.parquet").sort("user_id", "rank"))
    refused = command(*what, "--out", str(tmp_path / "out"), *on_cluster)
    assert "holds something else" in refused.message


def test_a_user_table_that_the_model_does_not_read_is_refused(two_nodes: Cluster, job: Job, tmp_path: Path) -> None:
    pl.DataFrame({"user_id": [1], "city": ["Oslo"]}).write_csv(tmp_path / "users.csv")
    with pytest.raises(InputError, match="fitted without a user table"):
        recommend_everybody(two_nodes, replace(job, user_table=str(tmp_path / "users.csv")), tmp_path / "out")
    assert not (tmp_path / "out").exists()
