"""Lines that were measured elsewhere take the place of those that stand."""

from pathlib import Path

from experiments import adopt
from experiments.results import append_lines, read_lines
from tests.experiments.test_report import line, trial


def test_a_run_is_replaced_and_what_it_told_about_validation_users_is_kept(tmp_path: Path) -> None:
    results, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    old = [line("dtr-t", 0.1, split=split, started="old") for split in ("validation", "test")]
    new = [line("dtr-t", 0.2, split=split, started="new") for split in ("validation", "test")]
    other = line("dtr-t", 0.3, seed=1, started="other")
    append_lines(results / "runs.jsonl", [*old, other])
    append_lines(elsewhere / "runs.jsonl", new)
    append_lines(elsewhere / "trials.jsonl", [trial("dtr-u", 0.4, started="tried")])
    for _ in range(2):
        adopt.main([str(elsewhere / "runs.jsonl"), "--why", "otherwise", "--results", str(results)])
        assert read_lines(results / "runs.jsonl") == [other, *new]
        retired, tried = read_lines(results / "trials.jsonl")
        assert retired == old[0] | {"role": "trial", "note": "before: faithful run, otherwise"}
        assert tried["started"] == "tried"
