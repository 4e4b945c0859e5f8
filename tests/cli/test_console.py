"""The progress of a fit as people see it: one bar for whichever learner is at work."""

import pytest
from rich.progress import Progress

from beamtree.cli.console import fit_progress
from beamtree.training.events import ESTIMATOR, TREE_MODEL, Resumed, StepDone, Validated

METRICS = {"recall@20": 0.25, "f@20": 0.125, "ndcg@20": 0.5}


def test_the_bar_begins_anew_with_each_learner_and_each_round(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resets: list[tuple[str | None, float]] = []
    reset = Progress.reset

    def noted(self: Progress, task: object, *, completed: int, description: str) -> None:
        resets.append((description, completed))
        reset(self, task, completed=completed, description=description)  # type: ignore[arg-type]

    monkeypatch.setattr(Progress, "reset", noted)
    with fit_progress() as listen:
        listen(Resumed(ESTIMATOR, 3))
        for step in (4, 5):
            listen(StepDone(ESTIMATOR, step, 5, 64, 2.0, 0.1))
        listen(Validated(ESTIMATOR, 5, 1.0, 2.0, METRICS, is_best=True))
        for _ in range(2):
            for step in (1, 2):
                listen(StepDone(TREE_MODEL, step, 2, 64, 2.0, 0.1))
    assert resets == [(ESTIMATOR, 3), (TREE_MODEL, 1), (TREE_MODEL, 1)]
    said = capsys.readouterr().err
    assert said.index("Learning the estimator.") < said.index("Resumed after step 3.")
    assert said.index("recall@20 0.2500  F@20 0.1250  NDCG@20 0.5000  best") < said.index("Learning the tree model.")
    assert said.count("Learning the tree model.") == 1
