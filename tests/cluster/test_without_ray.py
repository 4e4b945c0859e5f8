"""Without Ray nothing changes; asking for a cluster says how to install it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beamtree.cluster.connection import Cluster, connected
from beamtree.errors import InputError
from tests.cli.beamtree_command import Command

INSTALL = 'pip install "beamtree[ray]"'


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)


@pytest.mark.usefixtures("no_ray")
def test_fit_says_how_to_install_it(command: Command) -> None:
    outcome = command("fit", "log.csv", "--cluster", "auto")
    assert outcome.code != 0
    assert INSTALL in outcome.message


@pytest.mark.usefixtures("no_ray")
def test_recommend_says_how_to_install_it(command: Command) -> None:
    outcome = command("recommend", "model", "--log", "log.csv", "--out", "out", "--cluster", "auto")
    assert outcome.code != 0
    assert INSTALL in outcome.message


@pytest.mark.usefixtures("no_ray")
def test_python_says_how_to_install_it() -> None:
    with pytest.raises(InputError, match="pip install"), connected(Cluster()):
        pass


def test_nothing_imports_ray_before_a_cluster_is_asked_for() -> None:
    modules = "beamtree.cli.main, beamtree.cluster.fitting, beamtree.cluster.recommending, beamtree.recommender"
    code = f"import sys, {modules}; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_options_of_a_cluster_need_one(command: Command) -> None:
    outcome = command("fit", "log.csv", "--workers", "2")
    assert "--workers are about a cluster: give one with --cluster" in outcome.message


def test_a_cluster_recommends_for_all_users_of_a_log(command: Command, tmp_path: Path) -> None:
    for given in (["--history", "1,2"], ["--log", "log.csv", "--users", "7", "--out", str(tmp_path)]):
        outcome = command("recommend", "model", *given, "--cluster", "auto")
        assert "--cluster recommends for all users of a log" in outcome.message


@pytest.mark.parametrize("name", ["workers", "threads", "parts"])
def test_a_cluster_of_nothing_is_refused(name: str) -> None:
    nothing: dict[str, Any] = {name: 0}
    with pytest.raises(InputError, match=f"{name} of a cluster: expected at least 1, got 0"):
        Cluster(**nothing)
