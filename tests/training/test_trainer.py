"""The one training loop: what it selects, what it keeps, and that any learner goes on to the same bytes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from beamtree.config import Config, TrainingSettings
from beamtree.data.split import split_none
from beamtree.errors import ArtefactError, DivergedError, InterruptedTraining
from beamtree.model.next_item import NextItemModel
from beamtree.storage import file_sha256, read_manifest
from beamtree.training.checkpoint import Identity, has_checkpoint
from beamtree.training.estimate import sequence_learner
from beamtree.training.events import Event, Resumed, StepDone, StoppedEarly, Validated
from beamtree.training.gradients import Gradients
from beamtree.training.learner import Learner
from beamtree.training.schedule import Schedule, estimator_schedule, model_schedule
from beamtree.training.trainer import CheckpointPlan, Instances, Progress, Trainer
from beamtree.training.windows import TrainingWindows
from beamtree.types import AnyArray
from tests.small import assert_same_bytes, encoder_settings, model_settings
from tests.training.linear import TRUTH, LinearInstances, LinearLearner
from tests.training.runs import RING, ring_instances, torch_learner, training_settings

STEPS = 12
"""Of a run over 40 instances in batches of 8 for 2.4 epochs."""

Validate = Callable[[Any], Mapping[str, float]]


class CountingLearner:
    """A learner whose only weight is the number of steps it took, with losses as told."""

    def __init__(self, losses: Mapping[int, float] | None = None) -> None:
        self.steps = np.zeros(1)
        self.losses = losses or {}
        self.learning_rates: list[float] = []

    def gradients(self, batch: Any, *, step: int) -> Gradients:
        assert len(batch.targets) == 8
        return Gradients(self.losses.get(step, 1.0), {"steps": torch.ones(1, dtype=torch.float64)})

    def apply(self, gradients: Gradients, *, step: int, learning_rate: float) -> None:
        assert self.steps[0] == step
        self.steps += gradients.dense["steps"].numpy()
        self.learning_rates.append(learning_rate)

    def model_arrays(self) -> dict[str, AnyArray]:
        return {"steps": self.steps}

    def load_model_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        self.steps[:] = arrays["steps"]

    def optimiser_arrays(self) -> dict[str, AnyArray]:
        return {"rates": np.array(self.learning_rates)}

    def restore_optimiser(self, arrays: Mapping[str, AnyArray]) -> None:
        self.learning_rates = arrays["rates"].tolist()


def scores_by_step(scores: Mapping[int, float]) -> Validate:
    return lambda learner: {"f@20": scores[int(learner.steps[0])], "recall@20": 0.5}


def plan_for(
    directory: Path, settings: TrainingSettings, *, resume: bool = False, data: str = "ring"
) -> CheckpointPlan:
    identity = Identity.of(Config(training=settings), data_fingerprint=data)
    return CheckpointPlan(directory, identity, resume=resume, minutes=settings.schedule.checkpoint_minutes)


def run(
    learner: Learner,
    instances: Instances | None = None,
    *,
    schedule: Schedule | None = None,
    settings: TrainingSettings | None = None,
    validate: Validate | None = None,
    plan: CheckpointPlan | None = None,
    stop_after: int | None = None,
    events: list[Event] | None = None,
    clock: Iterator[float] | None = None,
    max_seconds: float | None = None,
) -> Progress:
    """Train on the ring, unless told otherwise; stop_after: ask to stop once so many steps were taken in this run."""
    asked = count(1)
    return Trainer(
        "toy",
        learner,
        instances or ring_instances(),
        schedule=schedule or model_schedule(settings or training_settings(), num_instances=40),
        validate=None if validate is None else (lambda: validate(learner)),
        plan=plan,
        listen=(lambda _: None) if events is None else events.append,
        should_stop=(lambda: False) if stop_after is None else (lambda: next(asked) >= stop_after),
        clock=(lambda: 0.0) if clock is None else (lambda: next(clock)),
        max_seconds=max_seconds,
    ).run()


def test_without_validation_it_trains_to_the_end_and_keeps_the_last_weights() -> None:
    learner, events = CountingLearner(), list[Event]()
    progress = run(learner, events=events)
    assert (progress.step, learner.steps[0], progress.best_validation()) == (STEPS, STEPS, {})
    steps = [event for event in events if isinstance(event, StepDone)]
    assert [event.step for event in steps] == list(range(1, STEPS + 1))
    assert {(event.learner, event.total_steps, event.instances, event.loss) for event in steps} == {
        ("toy", STEPS, 8, 1.0)
    }
    assert [event.learning_rate for event in steps] == learner.learning_rates
    assert learner.learning_rates[0] == 0.02 > learner.learning_rates[-1], "the schedule is followed"


def test_validations_are_spread_evenly_and_the_best_weights_win() -> None:
    learner, events = CountingLearner(), list[Event]()
    progress = run(learner, validate=scores_by_step({3: 0.1, 6: 0.3, 9: 0.2, 12: 0.25}), events=events)
    validated = [event for event in events if isinstance(event, Validated)]
    assert [(event.step, event.is_best) for event in validated] == [(3, True), (6, True), (9, False), (12, False)]
    assert [event.epoch for event in validated] == pytest.approx([0.6, 1.2, 1.8, 2.4])
    assert (validated[1].learner, validated[1].loss) == ("toy", 1.0)
    assert validated[1].metrics == {"f@20": 0.3, "recall@20": 0.5}
    assert (progress.step, progress.best_step, progress.best_score) == (12, 6, 0.3)
    assert learner.steps[0] == 6
    assert [entry["f@20"] for entry in progress.validations] == [0.1, 0.3, 0.2, 0.25]
    assert progress.best_validation() == {"step": 6, "epoch": pytest.approx(1.2), "f@20": 0.3, "recall@20": 0.5}


def test_an_equal_score_does_not_replace_the_earlier_best() -> None:
    learner = CountingLearner()
    run(learner, validate=scores_by_step({3: 0.3, 6: 0.3, 9: 0.0, 12: 0.3}))
    assert learner.steps[0] == 3


def test_it_stops_early_when_validation_no_longer_improves() -> None:
    learner, events = CountingLearner(), list[Event]()
    validate = scores_by_step({3: 0.1, 6: 0.3, 9: 0.2, 12: 0.9})
    settings = training_settings(patience=1)
    progress = run(learner, settings=settings, validate=validate, events=events)
    assert (progress.step, learner.steps[0]) == (9, 6)
    assert events[-1] == StoppedEarly("toy", step=9, best_step=6)
    patient = CountingLearner()
    run(patient, settings=training_settings(patience=2), validate=validate)
    assert patient.steps[0] == 12, "with more patience it would have found the better one"


def checkpoint_digest(directory: Path) -> list[tuple[str, str]]:
    return sorted((path.name, file_sha256(path)) for path in directory.iterdir())


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_stops_the_run_and_changes_nothing(tmp_path: Path, loss: float) -> None:
    settings = training_settings(checkpoint_minutes=0.0)
    with pytest.raises(InterruptedTraining):
        run(CountingLearner(), settings=settings, plan=plan_for(tmp_path, settings), stop_after=5)
    before = checkpoint_digest(tmp_path)
    lost = CountingLearner({5: loss})
    with pytest.raises(
        DivergedError, match=r"loss of the toy became .* at step 6.*lower training\.learning_rate \(now 0\.02\)"
    ):
        run(lost, settings=settings, plan=plan_for(tmp_path, settings, resume=True))
    assert checkpoint_digest(tmp_path) == before
    assert lost.steps[0] == 5, "no update was made"


def test_a_loss_that_runs_away_stops_the_run_and_leaves_the_checkpoint(tmp_path: Path) -> None:
    """Smoothed by 0.02, a single 200 lifts a loss of 1 to 4.98, beyond twice the lowest plus one; a 90 does not."""
    settings = training_settings(checkpoint_minutes=0.0)
    plan = plan_for(tmp_path, settings)
    assert run(CountingLearner({5: 90.0}), settings=settings, plan=plan).step == STEPS
    with pytest.raises(InterruptedTraining):
        run(CountingLearner(), settings=settings, plan=plan, stop_after=5)
    before = checkpoint_digest(tmp_path)
    with pytest.raises(DivergedError, match=r"rose from 1\.000 to 4\.980 by step 6.*warmup_steps \(now 0\)"):
        run(CountingLearner({5: 200.0}), settings=settings, plan=plan_for(tmp_path, settings, resume=True))
    assert checkpoint_digest(tmp_path) == before
    assert read_manifest(tmp_path)["progress"]["step"] == 5


def test_a_request_to_stop_saves_and_says_where(tmp_path: Path) -> None:
    settings = training_settings()
    with pytest.raises(
        InterruptedTraining, match=rf"after step 4 of 12 of the toy; the checkpoint is in {tmp_path}.*--resume"
    ):
        run(CountingLearner(), plan=plan_for(tmp_path, settings), stop_after=4)
    assert read_manifest(tmp_path)["progress"]["step"] == 4
    with pytest.raises(InterruptedTraining, match="Nothing was saved"):
        run(CountingLearner(), stop_after=4)


def test_a_request_to_stop_at_the_last_step_comes_too_late(tmp_path: Path) -> None:
    assert run(CountingLearner(), plan=plan_for(tmp_path, training_settings()), stop_after=STEPS).step == STEPS


def test_checkpoints_come_by_the_clock_at_validations_and_at_the_end(tmp_path: Path) -> None:
    """A clock that moves on by 25 seconds whenever it is read: at the start, in each step, after each save."""
    saved: list[int] = []

    class Watch(CountingLearner):
        def optimiser_arrays(self) -> dict[str, AnyArray]:
            saved.append(int(self.steps[0]))
            return {}

    settings = training_settings(checkpoint_minutes=1.0, validations=2)
    plan = plan_for(tmp_path, settings)
    run(Watch(), settings=settings, plan=plan, validate=lambda _: {"f@20": 0.0}, clock=(25.0 * i for i in count()))
    assert saved == [3, 6, 9, 12]
    saved.clear()
    run(Watch(), settings=settings, plan=plan, validate=lambda _: {"f@20": 0.0})
    assert saved == [6, 12], "with the clock standing still only validations remain"


def test_seconds_add_up_over_all_starts(tmp_path: Path) -> None:
    """The clock is read at the start, in each step, after a save and at the end; what a stopped run did counts."""
    settings = training_settings()
    with pytest.raises(InterruptedTraining):
        run(
            CountingLearner(), plan=plan_for(tmp_path, settings), stop_after=2, clock=iter([100.0, 101.0, 104.0, 110.0])
        )
    times = iter([0.0, *(float(second) for second in range(1, 30))])
    progress = run(CountingLearner(), plan=plan_for(tmp_path, settings, resume=True), clock=times)
    assert progress.seconds == 4.0 + next(times) - 1


def test_what_came_before_the_first_step_is_counted_once(tmp_path: Path) -> None:
    def trainer(*, resume: bool) -> Trainer:
        return Trainer(
            "toy",
            LinearLearner(),
            LinearInstances(),
            schedule=model_schedule(training_settings(), num_instances=40),
            validate=None,
            plan=plan_for(tmp_path, training_settings(), resume=resume),
            listen=lambda _: None,
            clock=lambda: 0.0,
        )

    assert trainer(resume=False).run(seconds_before=7.0).seconds == 7.0
    assert trainer(resume=True).run(seconds_before=7.0).seconds == 7.0


def test_without_resume_an_old_checkpoint_is_not_looked_at(tmp_path: Path) -> None:
    settings = training_settings()
    with pytest.raises(InterruptedTraining):
        run(CountingLearner(), plan=plan_for(tmp_path, settings), stop_after=4)
    learner, events = CountingLearner(), list[Event]()
    run(learner, plan=plan_for(tmp_path, settings), events=events)
    assert len(learner.learning_rates) == STEPS
    assert not any(isinstance(event, Resumed) for event in events)


def test_resume_without_a_checkpoint_starts_from_the_beginning(tmp_path: Path) -> None:
    events = list[Event]()
    plan = plan_for(tmp_path / "new", training_settings(), resume=True)
    assert run(CountingLearner(), plan=plan, events=events).step == STEPS
    assert events[0] == StepDone("toy", 1, STEPS, 8, 1.0, 0.02)


def by_distance(first: Mapping[str, AnyArray]) -> Validate:
    """A score that falls while the weights move away from where they began: the first validation is the best."""
    start = {name: array.copy() for name, array in first.items()}

    def validate(learner: Learner) -> Mapping[str, float]:
        moved = learner.model_arrays()
        return {"f@20": -sum(float(np.linalg.norm(moved[name] - array)) for name, array in start.items())}

    return validate


@dataclass(frozen=True)
class Case:
    """Makes the same learner, instances and schedule each time."""

    learner: Callable[[], Learner]
    instances: Callable[[], Instances]
    schedule: Schedule

    def run(self, learner: Learner, **options: Any) -> Progress:
        validate = by_distance(self.learner().model_arrays())
        return run(learner, self.instances(), schedule=self.schedule, validate=validate, **options)


def tree_case(**changes: Any) -> Case:
    settings = training_settings(patience=changes.pop("patience"))
    return Case(
        lambda: torch_learner(settings, model=model_settings(dropout=0.2, **changes)),
        ring_instances,
        model_schedule(settings, num_instances=40),
    )


def sasrec_case(**changes: Any) -> Case:
    given = {"width": 8, "dropout": 0.2, "epochs": 4, "batch_positions": 18, "learning_rate": 0.01}
    settings = encoder_settings(**(given | changes))
    windows = TrainingWindows.cut(RING, split_none(RING), length=3)

    def learner() -> Learner:
        generator = torch.Generator().manual_seed(1)
        encoder = NextItemModel(settings, num_items=8, history_length=3, generator=generator)
        return sequence_learner(encoder, windows=windows, seed=5)

    num_positions = int(windows.lengths.sum())
    schedule = estimator_schedule(settings, num_items=8, num_windows=len(windows), num_positions=num_positions, seed=5)
    return Case(learner, lambda: windows, schedule)


def linear_case() -> Case:
    return Case(LinearLearner, LinearInstances, model_schedule(training_settings(), num_instances=40))


CASES: dict[str, Callable[[], Case]] = {
    "tree model": lambda: tree_case(patience=10, normalisation="batch"),
    "tree model, stopped early": lambda: tree_case(patience=1, normalisation="layer"),
    "SASRec": lambda: sasrec_case(patience=10),
    "SASRec with sampled negatives, stopped early": lambda: sasrec_case(patience=1, negatives=3),
    "linear": linear_case,
}


@pytest.mark.parametrize("name", list(CASES))
def test_stopped_after_any_step_and_resumed_the_bytes_are_the_same(tmp_path: Path, name: str) -> None:
    case, settings = CASES[name](), training_settings()
    whole = case.learner()
    expected = case.run(whole)
    first_validation = min(case.schedule.validation_steps)
    assert expected.best_step == first_validation < expected.step
    assert ("early" in name) == (expected.step < case.schedule.total_steps)
    for stop_after in range(1, expected.step):
        directory, events = tmp_path / str(stop_after), list[Event]()
        with pytest.raises(InterruptedTraining):
            case.run(case.learner(), plan=plan_for(directory, settings), stop_after=stop_after)
        resumed = case.learner()
        progress = case.run(resumed, plan=plan_for(directory, settings, resume=True), events=events)
        assert events[0] == Resumed("toy", stop_after)
        assert progress == expected
        assert_same_bytes(resumed.model_arrays(), whole.model_arrays())
        assert_same_bytes(resumed.optimiser_arrays(), whole.optimiser_arrays())


@pytest.mark.parametrize("name", list(CASES))
def test_stopped_after_every_single_step_the_bytes_are_the_same(tmp_path: Path, name: str) -> None:
    case, plan = CASES[name](), plan_for(tmp_path, training_settings(), resume=True)
    whole, last = case.learner(), case.learner()
    expected = case.run(whole)
    for _ in range(expected.step - 1):
        with pytest.raises(InterruptedTraining):
            case.run(case.learner(), plan=plan, stop_after=1)
    assert case.run(last, plan=plan) == expected
    assert_same_bytes(last.model_arrays(), whole.model_arrays())


def test_resuming_a_finished_run_gives_its_result_again(tmp_path: Path) -> None:
    case, plan = CASES["tree model"](), plan_for(tmp_path, training_settings(), resume=True)
    first, again, events = case.learner(), case.learner(), list[Event]()
    expected = case.run(first, plan=plan)
    assert case.run(again, plan=plan, events=events) == expected
    assert events == [Resumed("toy", STEPS)]
    assert_same_bytes(again.model_arrays(), first.model_arrays())


def test_the_instances_go_on_from_what_they_remembered(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, training_settings(), resume=True)
    with pytest.raises(InterruptedTraining):
        run(LinearLearner(), LinearInstances(), plan=plan, stop_after=5)
    instances = LinearInstances()
    run(LinearLearner(), instances, plan=plan)
    assert instances.batches == STEPS


def test_a_learner_of_thirty_lines_learns() -> None:
    learner = LinearLearner()
    settings = training_settings(epochs=40, learning_rate=0.1, decay="constant")
    progress = run(
        learner, LinearInstances(), settings=settings, validate=lambda _: {"f@20": -abs(learner.weights - TRUTH).max()}
    )
    np.testing.assert_allclose(learner.weights, TRUTH, atol=1e-6)
    assert progress.best_step > 100


def test_gradients_of_two_halves_add_up_to_those_of_the_whole_batch() -> None:
    instances, numbers = LinearInstances(), np.arange(16)
    together, apart = LinearLearner(), LinearLearner()
    for step in range(3):
        whole = together.gradients(instances.batch(numbers, epoch=0), step=step)
        together.apply(whole, step=step, learning_rate=0.1)
        before = apart.weights.copy()
        halves = [apart.gradients(instances.batch(part, epoch=0), step=step) for part in np.split(numbers, 2)]
        assert (apart.weights == before).all(), "gradients change nothing"
        summed = Gradients.sum(halves, weights=[0.5, 0.5])
        assert summed.loss == pytest.approx(whole.loss)
        apart.apply(summed, step=step, learning_rate=0.1)
        np.testing.assert_allclose(apart.weights, together.weights, rtol=1e-12)


def test_a_checkpoint_of_other_settings_data_or_learner_is_refused(tmp_path: Path) -> None:
    settings = training_settings()
    with pytest.raises(InterruptedTraining):
        run(CountingLearner(), plan=plan_for(tmp_path, settings), stop_after=4)
    changed = training_settings(learning_rate=0.5, seed=8)
    with pytest.raises(
        ArtefactError, match=r"training\.learning_rate: 0\.02 then, 0\.5 now; training\.seed: 3 then, 8 now"
    ):
        run(CountingLearner(), settings=changed, plan=plan_for(tmp_path, changed, resume=True))
    with pytest.raises(ArtefactError, match="made from another log"):
        run(CountingLearner(), plan=plan_for(tmp_path, settings, resume=True, data="other"))
    other = Trainer(
        "other toy",
        CountingLearner(),
        ring_instances(),
        schedule=model_schedule(settings, num_instances=40),
        validate=None,
        plan=plan_for(tmp_path, settings, resume=True),
        listen=lambda _: None,
    )
    with pytest.raises(
        ArtefactError, match=r"checkpoint: toy'.*expected .*checkpoint: other toy'.*Start again: --restart"
    ):
        other.run()
    often = training_settings(checkpoint_minutes=0.0)
    progress = run(CountingLearner(), settings=often, plan=plan_for(tmp_path, often, resume=True))
    assert progress.step == STEPS, "how often checkpoints are written may change"


def test_it_ends_when_its_seconds_have_passed_and_validates_what_it_has_by_then(tmp_path: Path) -> None:
    """The clock is asked twice a step, and says another second each time."""
    learner, events, seconds = CountingLearner(), list[Event](), (float(second) for second in count())
    validate = scores_by_step({3: 0.3, 5: 0.4})
    plan = plan_for(tmp_path, training_settings(), resume=True)
    progress = run(learner, validate=validate, plan=plan, events=events, clock=seconds, max_seconds=10.0)
    assert (progress.step, progress.best_step, learner.steps[0]) == (5, 5, 5)
    assert progress.seconds >= 10.0
    assert not any(isinstance(event, StoppedEarly) for event in events), "validation did not stop it"
    again = CountingLearner()
    assert run(again, validate=validate, plan=plan, max_seconds=10.0).step == 5, "seconds of all starts count"
    assert again.steps[0] == 5


def test_a_limit_that_has_passed_before_leaves_one_step() -> None:
    learner = CountingLearner()
    assert run(learner, max_seconds=0.0).step == 1


def test_who_does_not_write_reads_what_others_wrote(tmp_path: Path) -> None:
    settings = training_settings()
    reader = replace(plan_for(tmp_path, settings, resume=True), writes=False)
    with pytest.raises(InterruptedTraining):
        run(CountingLearner(), plan=replace(reader, resume=False), stop_after=4)
    assert not has_checkpoint(tmp_path)
    with pytest.raises(InterruptedTraining):
        run(CountingLearner(), plan=replace(reader, writes=True), stop_after=4)
    events = list[Event]()
    assert run(CountingLearner(), plan=reader, events=events).step == STEPS
    assert Resumed("toy", 4) in events
