"""Lines that were measured elsewhere take the place of those that stand."""

from pathlib import Path

import pytest

from experiments.adopt import main
from experiments.results import append_lines, read_lines
from tests.experiments.test_report import line, trial


def test_a_run_is_replaced_and_what_it_told_about_validation_users_is_kept(tmp_path: Path) -> None:
    results, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    old = [line("dtr-t", 0.1, split=split, started="2026-01") for split in ("validation", "test")]
    new = [line("dtr-t", 0.2, split=split, started="2026-02") for split in ("validation", "test")]
    other = line("dtr-t", 0.3, seed=1, started="2026-03")
    append_lines(results / "runs.jsonl", [*old, other])
    append_lines(elsewhere / "runs.jsonl", [*new, other | {"started": "2026-01-01"}])
    append_lines(elsewhere / "trials.jsonl", [trial("dtr-u", 0.4, started="tried")])
    for _ in range(2):
        assert main([str(elsewhere / "runs.jsonl"), "--why", "otherwise", "--results", str(results)]) == 0
        assert read_lines(results / "runs.jsonl") == [other, *new]
        retired, tried = read_lines(results / "trials.jsonl")
        assert retired == old[0] | {"role": "trial", "note": "before: faithful run, otherwise"}
        assert tried["started"] == "tried"


@pytest.mark.parametrize(("name", "message"), [("nothing.jsonl", "There is no file"), ("trials.jsonl", "holds trials")])
def test_files_that_hold_no_runs_are_refused(
    tmp_path: Path, name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    append_lines(tmp_path / "trials.jsonl", [trial("dtr-u", 0.4)])
    assert main([str(tmp_path / name), "--why", "otherwise", "--results", str(tmp_path / "results")]) == 2
    assert message in capsys.readouterr().err
    assert not list((tmp_path / "results").glob("*.jsonl"))
