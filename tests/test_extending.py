"""The examples of docs/extending.md work as they stand."""

import re
from pathlib import Path

import pytest

from tests.cli.beamtree_command import write_sample

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")
PART, STRATEGY, BASELINE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def run(example: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sample(folder)
    monkeypatch.chdir(folder)
    exec(compile(example, "docs/extending.md", "exec"), {"__name__": "extending"})


def test_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(PART, tmp_path, monkeypatch)
    printed = capsys.readouterr().out
    assert "'exact'" in printed
    assert printed.count("taste") == 2, "a column of the recommendations, and a share of the explanation"


def test_a_strategy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(STRATEGY, tmp_path, monkeypatch)
    name, labels = capsys.readouterr().out.splitlines()
    assert name == "{'labels': 'last 3 levels'}"
    assert labels.startswith("[0.0, ")
    assert labels.endswith(", 0.0, 1.0, 1.0, 1.0]")


def test_a_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(BASELINE, tmp_path, monkeypatch)
    assert "'markov-chain': 0." in capsys.readouterr().out


def test_the_files_that_it_names_exist() -> None:
    root = Path(__file__).resolve().parent.parent
    paths = re.findall(r"`((?:tests|beamtree)/[a-z_/]+(?:\.py)?)`", PAGE)
    assert len(paths) >= 3
    assert all((root / path).exists() for path in paths)
