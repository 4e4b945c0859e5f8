"""Running an experiment: which lines it leaves, which users it asks, and how it goes on after a stop."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import experiments.run
from beamtree.data.split import HeldOut, Split
from beamtree.errors import InterruptedTraining
from beamtree.evaluation.protocol import split_dataset
from beamtree.training.events import ESTIMATOR, Event, Resumed, StepDone, Validated
from experiments.experiment import read_experiments
from experiments.journal import Journal
from experiments.results import Line, read_lines
from experiments.run import main, run_experiment, share_among
from tests.small import two_group_log

BASE = """
role = "faithful"
preset = "default"
[data]
name = "groups"
log = "groups/interactions.parquet"
[config.data]
min_interactions = 2
[config.model]
embedding_dim = 4
windows = [2, 2, 1]
attention_hidden = 3
layers = [8, 6, 4]
[config.training]
rounds = 2
negatives = 3
batch_size = 16
epochs = 1
learning_rate = 0.01
warmup_steps = 0
validations = 2
[config.estimator]
width = 4
layers = 1
heads = 1
epochs = 2
[config.retrieval]
beam_width = 4
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data" / "groups").mkdir(parents=True)
    two_group_log(length=12).frame.write_parquet(tmp_path / "data" / "groups" / "interactions.parquet")
    monkeypatch.setenv("BEAMTREE_DATA", str(tmp_path / "data"))
    (tmp_path / "base.toml").write_text(BASE)
    return tmp_path


def settings(folder: Path, name: str, text: str) -> Path:
    file = folder / f"{name}.toml"
    file.write_text(f'extends = "base.toml"\n{text}')
    return file


def run(folder: Path, *files: Path, **options: Any) -> int:
    flags = [part for name, value in options.items() for part in (f"--{name}", *str(value).split())]
    out = ["--out", str(folder / "runs.jsonl"), "--work", str(folder / "work")]
    return main([*map(str, files), *out, *flags])


def summary(line: Line) -> tuple[Any, ...]:
    return line["split"], line["final"], line["round"]


def test_a_tree_leaves_a_line_for_each_round_and_one_on_the_test_users(folder: Path) -> None:
    assert run(folder, settings(folder, "t", 'system = "dtr-t"'), seed=3) == 0
    lines = read_lines(folder / "runs.jsonl")
    best = lines[-1]["round"]
    assert [summary(line) for line in lines] == [
        ("validation", False, 0),
        ("validation", False, 1),
        ("validation", True, best),
        ("test", True, best),
    ]
    for line in lines:
        assert (line["data"], line["system"], line["role"], line["seed"]) == ("groups", "dtr-t", "faithful", 3)
        assert line["protocol"] == "clean"
        assert line["beam_width"] == 4
        assert line["settings"]["file"] == "t.toml"
        assert (
            line["settings"]["config"]["training"] | {"method": "dtr-t", "seed": 3, "rounds": 2}
            == (line["settings"]["config"]["training"])
        )
    first, second, last, test = lines
    assert 0 < first["instances"] < second["instances"] == last["instances"] == test["instances"]
    assert first["instances"] % 16 == 0
    assert 0.0 <= first["moved_share"] <= 1.0
    assert {"precision@20", "recall@20", "f@20", "f@40", "ndcg@20"} <= test["metrics"].keys()
    assert test["exact"]["users"] == test["users"] > 0
    assert test["exact"]["beam"] == test["metrics"], "everybody was asked exactly too"
    assert not list((folder / "work").iterdir()), "a finished run needs no checkpoints"


def test_a_tree_is_measured_for_what_the_theory_says(folder: Path) -> None:
    files = [settings(folder, system, f'system = "{system}"') for system in ("dtr-u", "dtr-t-rl")]
    trial = settings(folder, "trial", 'system = "dtr-u"\nrole = "trial"\nnote = "no theory"')
    assert run(folder, *files, trial) == 0
    lines = read_lines(folder / "runs.jsonl")
    uniform, rectified = (line["theory"] for line in lines if "theory" in line)
    assert all(line["final"] and line["split"] == "validation" for line in lines if "theory" in line)
    assert [level["level"] for level in uniform["levels"]] == [1, 2, 3, 4, 5]
    sampled = [level["sampled"] for level in uniform["levels"]]
    assert sampled == [False, False, True, True, True], "three negatives and the target are all of four nodes"
    leaves = uniform["levels"][-1]
    assert uniform["levels"][2]["kl_top_down"] == 0, "the first sampled level is drawn from its softmax"
    assert leaves["kl_top_down"] > 0
    assert leaves["child_violations"] is None
    assert all(0 <= level["child_violations"] <= 1 for level in uniform["levels"][:-1])
    assert uniform["labels"] is None
    assert len(rectified["labels"]["positive"]) == 5
    assert rectified["labels"]["positive"][-1] == 1.0, "a leaf wins against itself"
    assert list(rectified["labels"]["changed"]) == ["1e-07", "1e-06", "1e-05", "1e-04", "1e-03", "1e-02"]
    assert all("theory" not in line for line in read_lines(folder / "trials.jsonl"))


@pytest.mark.parametrize("system", ["popularity", "item-to-item", "ease", "sasrec", "sasrec-item-to-item"])
def test_a_baseline_leaves_its_lines_under_the_same_protocol(folder: Path, system: str) -> None:
    assert run(folder, settings(folder, system, f'system = "{system}"')) == 0
    lines = read_lines(folder / "runs.jsonl")
    assert [summary(line) for line in lines] == [("validation", True, 0), ("test", True, 0)]
    assert all(line["exact"] is None and line["beam_width"] is None for line in lines)
    trained = 38 * 12 + 10 * 6
    windows_after_the_first_target = 38 * 11 + 10 * 5
    assert lines[0]["instances"] == (2 * windows_after_the_first_target if system.startswith("sasrec") else trained)


def test_a_run_is_measured_without_seen_items_too(folder: Path) -> None:
    file = settings(folder, "p", 'system = "popularity"\nconfig.retrieval.exclude_seen = false')
    assert run(folder, file) == 0
    assert run(folder, settings(folder, "q", 'system = "popularity"\nrole = "best"')) == 0
    lines = {line["role"]: line for line in read_lines(folder / "runs.jsonl") if line["split"] == "test"}
    assert lines["faithful"]["unseen"] == lines["best"]["unseen"] == lines["best"]["metrics"]
    assert lines["faithful"]["unseen"] != lines["faithful"]["metrics"], "here seen items take places in the lists"
    assert 0 < lines["faithful"]["seen@20"] < 1


def test_the_share_of_what_users_had_already() -> None:
    recommended = np.array([[3, 1, 2], [5, -1, -1], [0, 1, -1]], dtype=np.int32)
    own = np.array([1, 2, 9, 7, 5], dtype=np.int32), np.array([0, 3, 4, 5], dtype=np.int64)
    assert share_among(recommended, own) == 2 / 6, "5 is another user's"


def test_a_finished_run_is_skipped_unless_asked_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = settings(folder, "p", 'system = "popularity"')
    assert run(folder, file, seeds="0 1") == 0
    kept = (folder / "runs.jsonl").read_text()
    assert run(folder, file, seeds="0 1") == 0
    assert (folder / "runs.jsonl").read_text() == kept
    assert "skipped, stands in runs.jsonl: p.toml: popularity on groups" in capsys.readouterr().out
    changed = settings(folder, "p", 'system = "popularity"\nconfig.retrieval.exclude_seen = false')
    assert run(folder, changed) == 0
    assert (folder / "runs.jsonl").read_text() == kept, "one test line for each system, whatever the settings"
    assert "with OTHER settings" in capsys.readouterr().out
    assert main([str(file), "--out", str(folder / "runs.jsonl"), "--work", str(folder / "w"), "--again"]) == 0
    lines = read_lines(folder / "runs.jsonl")
    assert [line["seed"] for line in lines if line["split"] == "test"] == [1, 0]


def test_a_trial_never_asks_a_test_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Untouchable(HeldOut):
        def labels(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("a trial asked the test users")

    def guarded(dataset: Any, *, config: Any) -> Split:
        split = split_dataset(dataset, config=config)
        return replace(split, test=Untouchable(**vars(split.test)))

    monkeypatch.setattr(experiments.run, "split_dataset", guarded)
    trial = settings(folder, "trial", 'system = "dtr-u"\nrole = "trial"\nnote = "a try"')
    assert run(folder, trial) == 0
    assert not (folder / "runs.jsonl").exists()
    lines = read_lines(folder / "trials.jsonl")
    assert {line["split"] for line in lines} == {"validation"}
    assert lines[-1]["note"] == "a try"
    assert lines[-1]["final"]
    with pytest.raises(AssertionError, match="asked the test users"):
        run(folder, settings(folder, "u", 'system = "dtr-u"'))


def test_trials_are_told_apart_by_their_settings(folder: Path) -> None:
    for width in (4, 8, 4):
        text = f'system = "popularity"\nrole = "trial"\nconfig.retrieval.beam_width = {width}'
        assert run(folder, settings(folder, "trial", text)) == 0
    recorded = [line["settings"]["config"]["retrieval"]["beam_width"] for line in read_lines(folder / "trials.jsonl")]
    assert recorded == [4, 8]


def test_the_same_settings_count_in_each_study_that_has_them(folder: Path) -> None:
    for name in ("negatives", "embedding"):
        study = f'system = "popularity"\nrole = "trial"\n[study]\nname = "{name}"\npoints = [{{value = 4}}]\n'
        for _ in range(2):
            assert run(folder, settings(folder, name, study)) == 0
    found = [line["study"]["study"] for line in read_lines(folder / "trials.jsonl")]
    assert found == ["negatives", "embedding"]


def test_who_is_held_out_does_not_depend_on_the_seed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []

    def watched(dataset: Any, *, config: Any) -> Split:
        split = split_dataset(dataset, config=config)
        asked.append(split.test.user.tolist())
        return split

    monkeypatch.setattr(experiments.run, "split_dataset", watched)
    assert run(folder, settings(folder, "p", 'system = "popularity"'), seeds="0 1") == 0
    assert run(folder, settings(folder, "q", 'system = "popularity"\nrole = "best"\nconfig.data.split_seed = 1')) == 0
    assert asked[0] == asked[1] != asked[2]


def test_a_stopped_run_goes_on_and_ends_with_the_same_metrics(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = settings(folder, "t", 'system = "dtr-u"')
    [experiment] = read_experiments(file)
    whole = run_experiment(experiment, seed=0, work=folder / "whole", listen=lambda _: None)
    steps = 0

    def stop_at(event: Event) -> None:
        nonlocal steps
        steps += isinstance(event, StepDone)
        if steps == 50:
            raise InterruptedTraining("stopped")

    monkeypatch.setattr(experiments.run, "tell", stop_at)
    assert run(folder, file) == 130
    assert not (folder / "runs.jsonl").exists()
    seen: list[Event] = []
    monkeypatch.setattr(experiments.run, "tell", seen.append)
    assert run(folder, file) == 0
    assert any(isinstance(event, Resumed) for event in seen)
    lines = read_lines(folder / "runs.jsonl")
    assert [line["metrics"] for line in lines] == [line["metrics"] for line in whole]
    assert [line["instances"] for line in lines] == [line["instances"] for line in whole]
    assert lines[-1]["starts"] == 2


def test_an_estimator_is_trained_once_and_charged_to_every_run_that_uses_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Event] = []
    monkeypatch.setattr(experiments.run, "tell", seen.append)
    files = [settings(folder, system, f'system = "{system}"') for system in ("dtr-t-rl", "sasrec")]
    assert run(folder, *files) == 0
    assert [event.epoch for event in seen if isinstance(event, Validated) and event.learner == ESTIMATOR] == [1, 2]
    [cost_file] = (folder / "work" / "estimators").glob("cost-*.json")
    cost = json.loads(cost_file.read_text())
    tree, sasrec = (line for line in read_lines(folder / "runs.jsonl") if line["split"] == "test")
    assert cost["epochs"] == 2
    assert tree["seconds"] >= cost["seconds"]
    assert tree["stages"].keys() >= {"estimator_seconds", "labels_seconds", "learning_seconds"}
    stages = tree["stages"]
    assert (tree["seconds_estimator"] or 0.0) == pytest.approx(stages["estimator_seconds"] + stages["labels_seconds"])
    assert sasrec["seconds"] >= cost["seconds"]
    assert sasrec["instances"] == 2 * (38 * 11 + 10 * 5)


def test_what_another_run_did_is_charged_once(tmp_path: Path) -> None:
    for _ in range(2):
        journal = Journal(tmp_path / "journal.json", lambda _: None, clock=lambda: 0.0, cpu_clock=lambda: 0.0)
        journal.charge(30.0, 20.0)
        journal.save()
    assert journal.seconds() == (30.0, 20.0)


def test_seconds_add_up_over_starts(tmp_path: Path) -> None:
    times = iter([100.0, 107.0, 0.0, 3.0])
    for _ in range(2):
        journal = Journal(tmp_path / "journal.json", lambda _: None, clock=lambda: next(times), cpu_clock=lambda: 0.0)
        journal.save()
    kept = json.loads((tmp_path / "journal.json").read_text())
    assert (kept["seconds"], kept["cpu_seconds"], kept["starts"]) == (10.0, 0.0, 2)


def test_waiting_is_left_out_for_good(tmp_path: Path) -> None:
    times = iter([100.0, 107.0, 107.0, 0.0, 3.0])
    journal = Journal(tmp_path / "journal.json", lambda _: None, clock=lambda: next(times), cpu_clock=lambda: 0.0)
    journal.leave_out(5.0, 0.0)
    assert journal.seconds() == (2.0, 0.0)
    journal.save()
    again = Journal(tmp_path / "journal.json", lambda _: None, clock=lambda: next(times), cpu_clock=lambda: 0.0)
    assert again.seconds() == (5.0, 0.0)


def test_a_failing_run_does_not_stop_the_next(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = settings(folder, "broken", 'system = "dtr-u"\nconfig.tree.order = "category"')
    assert run(folder, broken, settings(folder, "p", 'system = "popularity"')) == 1
    assert [line["system"] for line in read_lines(folder / "runs.jsonl")] == ["popularity", "popularity"]
    assert "failed: broken.toml" in capsys.readouterr().err
