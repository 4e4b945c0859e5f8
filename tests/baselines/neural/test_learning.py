"""Trials, the training after them, what is kept of both, and that a stopped one goes on to the same bytes."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beamtree.baselines.neural.recipe import AS_PUBLISHED
from beamtree.baselines.neural.task import Task
from beamtree.baselines.protocol import Budget
from beamtree.errors import DivergedError, InterruptedTraining
from beamtree.training.checkpoint import copied
from beamtree.training.events import Event, StepDone
from beamtree.training.module_arrays import module_arrays
from beamtree.training.module_learner import ModuleLearner
from beamtree.training.trainer import Trainer
from tests.baselines.neural.small import NAMES, quick, train
from tests.baselines.small_logs import budget, halves
from tests.baselines.test_contract import cycling
from tests.small import assert_same_bytes

DATASET = cycling(users=40)
SPLIT = halves(DATASET, validation=list(range(10)))
TWO_RATES = {"learning_rates": (0.02, 0.001), "epochs": 4, "validations": 2, "batch_size": 8}


def given(
    directory: Path | None = None, *, stop_after: int | None = None, **changes: Any
) -> tuple[Budget, list[Event]]:
    """A budget and the events of what is fitted with it; stopped after so many steps, if told to."""
    events: list[Event] = []
    steps = itertools.count(1)
    stop = {} if stop_after is None else {"should_stop": lambda: next(steps) >= stop_after}
    limits = {"directory": directory, "listen": events.append, **stop, **changes}
    return replace(budget(exclude_seen=False), **limits), events


def weights(task: Task[Any]) -> dict[str, Any]:
    return copied(module_arrays(task.module))


def learners(events: list[Event]) -> list[str]:
    return list(dict.fromkeys(event.learner for event in events if isinstance(event, StepDone)))


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Makes validations say what is given for learners in turn; the list gets what each of them ends with."""

    def judge(*scores: float) -> list[dict[str, Any]]:
        given, learned, run = iter(scores), list[dict[str, Any]](), Trainer.run

        def judged(self: Any, *, seconds_before: float = 0.0) -> Any:
            score = next(given)
            object.__setattr__(self, "validate", lambda: {"f@20": score})
            progress = run(self, seconds_before=seconds_before)
            learned.append(copied(self.learner.model_arrays()))
            return progress

        monkeypatch.setattr(Trainer, "run", judged)
        return learned

    return judge


@pytest.mark.parametrize(("scores", "chosen"), [((0.3, 0.2), 0.02), ((0.3, 0.4), 0.001), ((0.3, 0.3), 0.02)])
def test_rates_are_tried_and_the_best_one_is_trained_with(
    judge: Callable[..., Any], scores: tuple[float, float], chosen: float
) -> None:
    judge(*scores, 0.9)
    own, events = given()
    train(quick("youtube-dnn", **TWO_RATES), DATASET, SPLIT, budget=own)
    assert learners(events) == [
        "youtube-dnn with learning rate 0.02",
        "youtube-dnn with learning rate 0.001",
        "youtube-dnn",
    ]
    rates = [event.learning_rate for event in events if isinstance(event, StepDone) and event.learner == "youtube-dnn"]
    assert max(rates) == pytest.approx(chosen)


def test_without_validation_users_the_first_rate_is_taken_untried() -> None:
    own, events = given()
    train(quick("youtube-dnn", **TWO_RATES), DATASET, halves(DATASET), budget=own)
    assert learners(events) == ["youtube-dnn"]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_found_again(tmp_path: Path, name: str) -> None:
    if name == "lightgcn":
        pytest.importorskip("torch_geometric")
    own, events = given(tmp_path)
    settings = quick(name, epochs=2)
    first = train(settings, DATASET, SPLIT, budget=own)
    heard = len(events)
    again = train(settings, DATASET, SPLIT, budget=own)
    assert heard > 0
    assert len(events) == heard, "nothing is learned anew"
    assert_same_bytes(weights(first), weights(again))
    assert [path.name for path in tmp_path.glob("*unfinished*")] == []
    train(quick(name, epochs=3), DATASET, SPLIT, budget=own)
    assert len(events) > heard, "other settings are another network"
    heard = len(events)
    train(settings, DATASET, SPLIT, budget=replace(own, seconds=1000.0))
    assert len(events) > heard, "so are other seconds"


@pytest.mark.parametrize("name", NAMES)
def test_stopped_at_any_step_it_goes_on_to_the_same_bytes(tmp_path: Path, name: str) -> None:
    """Some of the stops are in trials, the last one is in the training."""
    if name == "lightgcn":
        pytest.importorskip("torch_geometric")
    settings = quick(name, **TWO_RATES)
    own, events = given()
    whole = train(settings, DATASET, SPLIT, budget=own)
    steps = sum(isinstance(event, StepDone) for event in events)
    for stop_after in (1, 2, 3, steps // 3):
        interrupted, _ = given(tmp_path, stop_after=stop_after)
        with pytest.raises(InterruptedTraining):
            train(settings, DATASET, SPLIT, budget=interrupted)
    resumed_budget, rest = given(tmp_path)
    resumed = train(settings, DATASET, SPLIT, budget=resumed_budget)
    assert sum(isinstance(event, StepDone) for event in rest) < steps
    assert_same_bytes(weights(resumed), weights(whole))


def test_a_rate_that_diverges_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = ModuleLearner.apply

    def explode(self: Any, gradients: Any, *, step: int, learning_rate: float) -> None:
        if learning_rate > 0.5:
            raise DivergedError("too high")
        apply(self, gradients, step=step, learning_rate=learning_rate)

    monkeypatch.setattr(ModuleLearner, "apply", explode)
    own, events = given()
    train(quick("youtube-dnn", learning_rates=(1.0, 0.01), epochs=5), DATASET, SPLIT, budget=own)
    peak = max(event.learning_rate for event in events if isinstance(event, StepDone))
    assert peak == pytest.approx(0.01)


def test_a_trial_that_is_better_than_the_training_is_kept(tmp_path: Path, judge: Callable[..., Any]) -> None:
    learned = judge(0.3, 0.5, 0.4)
    kept, _ = given(tmp_path)
    task = train(quick("youtube-dnn", **TWO_RATES), DATASET, SPLIT, budget=kept)
    assert_same_bytes(weights(task), learned[1])
    assert not np.array_equal(learned[1]["items"], learned[2]["items"])


def test_seconds_that_are_over_still_give_a_network() -> None:
    own, events = given(seconds=0.0)
    task = train(quick("youtube-dnn", **TWO_RATES), DATASET, SPLIT, budget=own)
    assert sum(isinstance(event, StepDone) for event in events) == 3, "a step for each trial and the training"
    assert task.module is not None


def test_how_much_is_read_may_be_left_to_the_log() -> None:
    assert AS_PUBLISHED.read_length(budget().config) == 69
    assert replace(AS_PUBLISHED, history_length=None).read_length(budget().config) == 5
