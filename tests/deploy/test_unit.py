"""The systemd unit: what it may do, and what systemd itself says about it where it is installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.dockerfile import ROOT

UNIT = ROOT / "deploy" / "beamtree.service"
WORST_EXPOSURE = 2.0
"""systemd's own scale goes from 0 (confined) to 10."""


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if re.match(r"[A-Z]\w*=", line):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_it_runs_as_nobody_in_particular_and_writes_only_its_state() -> None:
    unit = settings()
    for name in ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "MemoryDenyWriteExecute"):
        assert unit[name] == ["yes"], name
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["CapabilityBoundingSet"] == [""]
    assert unit["StateDirectory"] == ["beamtree"]
    assert "ReadWritePaths" not in unit
    assert "User" not in unit


def test_no_secret_stands_in_the_unit() -> None:
    unit = settings()
    assert not [value for value in unit["Environment"] if "TOKEN" in value]
    assert unit["EnvironmentFile"] == ["-/etc/beamtree.env"]


def test_it_stops_gently() -> None:
    unit = settings()
    assert unit["KillSignal"] == ["SIGTERM"]
    assert int(unit["TimeoutStopSec"][0]) > 30


CONFINE = """
import ctypes, os, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
if ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) != 0:
    sys.exit("unsupported")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
SEARCH = """
import sys, httptools, uvloop, beamtree.serving.run
import beamtree
print(len(beamtree.load(sys.argv[1]).recommend_histories([["apple"]], k=3)))
"""


def test_a_server_finds_its_items_where_no_memory_is_both_written_and_run() -> None:
    """MemoryDenyWriteExecute, by the kernel's own switch, with the environment that the unit sets."""
    environment = dict(value.split("=") for value in settings()["Environment"])
    searched = subprocess.run(
        [sys.executable, "-c", CONFINE, "-c", SEARCH, str(ROOT / "tests" / "fixtures" / "artefact-v1")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"} | environment,
    )
    if searched.stderr.strip() == "unsupported":
        pytest.skip("this kernel has no such switch")
    assert searched.stdout.strip() == "3", searched.stderr


@pytest.fixture
def runnable_unit(tmp_path: Path) -> Path:
    """The unit with a program that exists, since systemd looks for it."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/beamtree/bin/beamtree", "/bin/true"))
    return path


def test_systemd_understands_every_line(runnable_unit: Path) -> None:
    verified = subprocess.run(["systemd-analyze", "verify", runnable_unit], capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stderr
    assert runnable_unit.name not in verified.stderr, verified.stderr


def test_systemd_calls_it_confined(runnable_unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(runnable_unit)]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", judged.stdout)
    assert found is not None, judged.stderr
    assert float(found[1]) <= WORST_EXPOSURE
