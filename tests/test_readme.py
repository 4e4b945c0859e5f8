"""Everything that the README tells people to type works as it stands."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.beamtree_command import Command, write_sample

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_sample(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_shell_blocks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    beamtree = Command(monkeypatch, capsys)
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("beamtree ")]
    assert len(commands) >= 4
    for command in commands:
        outcome = beamtree(*shlex.split(command)[1:])
        assert outcome.code == 0, f"{command}\n{outcome.err}"


@pytest.mark.usefixtures("folder")
def test_python_block(capsys: pytest.CaptureFixture[str]) -> None:
    [block] = blocks("python")
    assert len(block.strip().splitlines()) <= 12
    exec(compile(block, "README.md", "exec"), {})
    assert "item_id" in capsys.readouterr().out


def test_every_command_of_the_table_exists(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    beamtree = Command(monkeypatch, capsys)
    rows = re.findall(r"^\| `beamtree ([a-z]+)((?: [a-z]+)?)", README, flags=re.MULTILINE)
    assert len(rows) >= 9
    for command, subcommand in rows:
        assert beamtree(command, *subcommand.split(), "--help").code == 0


def test_nothing_is_left_to_fill_in() -> None:
    assert not re.findall(r"\b[A-Z]+_[A-Z]+_?[A-Z]*\b(?<!BEAMTREE_THREADS)", README)


def test_make_targets_and_linked_files_exist() -> None:
    for target in re.findall(r"make ([a-z]+)", README):
        subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)
    for path in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / path).exists(), path


def test_the_map_of_the_code_is_true() -> None:
    """Every entry of the map exists, and every folder and file of the package's top level is on it."""
    [block] = [block for block in re.findall(r"```text\n(.*?)```", README, flags=re.DOTALL) if "beamtree/" in block]
    inside = set(re.findall(r"^  ([a-z_]+(?:/|\.py))", block, flags=re.MULTILINE))
    outside = set(re.findall(r"^([a-z]+/)", block, flags=re.MULTILINE))
    hidden = ("_", ".")
    actual = {path.name + "/" * path.is_dir() for path in (ROOT / "beamtree").iterdir() if path.name[0] not in hidden}
    assert inside == actual - {"py.typed"}
    assert all((ROOT / name).is_dir() for name in outside)
