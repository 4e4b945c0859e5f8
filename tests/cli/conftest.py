from pathlib import Path

import pytest

from tests.cli.beamtree_command import Command, write_sample


@pytest.fixture
def beamtree(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a small log, its items and quick settings."""
    write_sample(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
