from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from beamtree.config import Config, TrainingSettings
from beamtree.errors import ArtefactError, DivergedError, InterruptedTraining
from beamtree.storage import file_sha256, read_manifest, write_bundle
from beamtree.training.checkpoint import Progress, RunIdentity
from beamtree.training.events import Event, Resumed, StepDone, StoppedEarly, Validated
from beamtree.training.gradients import Gradients
from beamtree.training.instances import Batch
from beamtree.training.learner import Learner
from beamtree.training.optimise import CheckpointPlan, optimise
from tests.small import Arrays, assert_same_bytes, fresh_attention, model_settings, weights_of
from tests.training.runs import ring_instances, ring_tree, torch_learner, training_settings

STEPS = 12
"""Of a run over 40 instances in batches of 8 for 2.4 epochs."""


class CountingLearner:
    """A learner whose only weight is the number of steps it took, with losses as told."""

    def __init__(self, losses: Mapping[int, float] | None = None) -> None:
        self.steps = np.zeros(1)
        self.losses = losses or {}
        self.learning_rates: list[float] = []

    def gradients(self, batch: Batch, *, step: int) -> Gradients:
        assert batch.targets.shape == (8, 1)
        return Gradients(self.losses.get(step, 1.0), {"steps": torch.ones(1)})

    def apply(self, gradients: Gradients, *, step: int, learning_rate: float) -> None:
        del step
        self.steps += gradients.dense["steps"].numpy()
        self.learning_rates.append(learning_rate)

    def model_arrays(self) -> Arrays:
        return {"steps": self.steps}

    def load_model_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.steps[:] = arrays["steps"]

    def optimiser_arrays(self) -> Arrays:
        return {"rates": np.array(self.learning_rates)}

    def restore_optimiser(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.learning_rates = arrays["rates"].tolist()


def steps_taken(learner: Learner) -> int:
    return int(learner.model_arrays()["steps"][0])


ValidateLearner = Callable[[Learner], Mapping[str, float]]


def scores_by_step(scores: Mapping[int, float]) -> ValidateLearner:
    return lambda learner: {"f@20": scores[steps_taken(learner)], "recall@20": 0.5}


def nobody(_: Event) -> None:
    pass


def plan_for(
    directory: Path, settings: TrainingSettings, *, resume: bool = False, data: str = "ring"
) -> CheckpointPlan:
    identity = RunIdentity.of(Config(training=settings), data_fingerprint=data)
    return CheckpointPlan(directory, identity=identity, resume=resume)


def run(
    learner: Learner,
    *,
    settings: TrainingSettings | None = None,
    validate: ValidateLearner | None = None,
    plan: CheckpointPlan | None = None,
    stop_after: int | None = None,
    events: list[Event] | None = None,
    clock: Iterator[float] | None = None,
) -> Progress:
    """Train on the ring; stop_after: ask to stop once so many steps were taken in this run."""
    asked = count(1)
    return optimise(
        learner,
        ring_instances(),
        settings=settings or training_settings(),
        validate=None if validate is None else partial(validate, learner),
        plan=plan,
        listen=nobody if events is None else events.append,
        should_stop=(lambda: False) if stop_after is None else (lambda: next(asked) >= stop_after),
        clock=(lambda: 0.0) if clock is None else (lambda: next(clock)),
    )


def test_without_validation_it_trains_to_the_end_and_keeps_the_last_weights() -> None:
    learner, events = CountingLearner(), list[Event]()
    progress = run(learner, events=events)
    assert (progress.step, steps_taken(learner)) == (STEPS, STEPS)
    steps = [event for event in events if isinstance(event, StepDone)]
    assert [event.step for event in steps] == list(range(1, STEPS + 1))
    assert {(event.total_steps, event.instances, event.loss) for event in steps} == {(STEPS, 8, 1.0)}
    assert [event.learning_rate for event in steps] == learner.learning_rates
    assert learner.learning_rates[0] == 0.02 > learner.learning_rates[-1], "the schedule is followed"


def test_validations_are_spread_evenly_and_the_best_weights_win() -> None:
    learner, events = CountingLearner(), list[Event]()
    progress = run(learner, validate=scores_by_step({3: 0.1, 6: 0.3, 9: 0.2, 12: 0.25}), events=events)
    validated = [event for event in events if isinstance(event, Validated)]
    assert [(event.step, event.is_best) for event in validated] == [(3, True), (6, True), (9, False), (12, False)]
    assert [event.epoch for event in validated] == pytest.approx([0.6, 1.2, 1.8, 2.4])
    assert validated[1].metrics == {"f@20": 0.3, "recall@20": 0.5}
    assert (progress.step, progress.best_step, progress.best_score) == (12, 6, 0.3)
    assert steps_taken(learner) == 6
    assert [entry["f@20"] for entry in progress.validations] == [0.1, 0.3, 0.2, 0.25]
    assert progress.validations[0] == {"step": 3, "epoch": pytest.approx(0.6), "f@20": 0.1, "recall@20": 0.5}


def test_an_equal_score_does_not_replace_the_earlier_best() -> None:
    learner = CountingLearner()
    run(learner, validate=scores_by_step({3: 0.3, 6: 0.3, 9: 0.0, 12: 0.3}))
    assert steps_taken(learner) == 3


def test_it_stops_early_when_validation_no_longer_improves() -> None:
    learner, events = CountingLearner(), list[Event]()
    validate = scores_by_step({3: 0.1, 6: 0.3, 9: 0.2, 12: 0.9})
    settings = training_settings(patience=1)
    progress = run(learner, settings=settings, validate=validate, events=events)
    assert (progress.step, steps_taken(learner)) == (9, 6)
    assert events[-1] == StoppedEarly(step=9, best_step=6)
    patient = CountingLearner()
    run(patient, settings=training_settings(patience=2), validate=validate)
    assert steps_taken(patient) == 12, "with more patience it would have found the better one"


def checkpoint_digest(directory: Path) -> list[tuple[str, str]]:
    return sorted((path.name, file_sha256(path)) for path in directory.iterdir())


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_the_checkpoint(tmp_path: Path, loss: float) -> None:
    settings = training_settings(checkpoint_minutes=0.0)
    with pytest.raises(InterruptedTraining):
        run(CountingLearner(), settings=settings, plan=plan_for(tmp_path, settings), stop_after=5)
    before = checkpoint_digest(tmp_path)
    with pytest.raises(DivergedError, match=r"loss became .* at step 6.*lower training\.learning_rate \(now 0\.02\)"):
        run(CountingLearner({5: loss}), settings=settings, plan=plan_for(tmp_path, settings, resume=True))
    assert checkpoint_digest(tmp_path) == before


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
    with pytest.raises(InterruptedTraining, match=rf"after step 4 of 12; the checkpoint is in {tmp_path}.*--resume"):
        run(CountingLearner(), plan=plan_for(tmp_path, settings), stop_after=4)
    assert read_manifest(tmp_path)["progress"]["step"] == 4
    with pytest.raises(InterruptedTraining, match="Nothing was saved"):
        run(CountingLearner(), stop_after=4)


def test_a_request_to_stop_at_the_last_step_comes_too_late(tmp_path: Path) -> None:
    assert run(CountingLearner(), plan=plan_for(tmp_path, training_settings()), stop_after=STEPS).step == STEPS


def test_checkpoints_come_by_the_clock_at_validations_and_at_the_end(tmp_path: Path) -> None:
    """A clock that moves on by 25 seconds whenever it is read: once at the start, once per step, once per save."""
    saved: list[int] = []

    class Watch(CountingLearner):
        def optimiser_arrays(self) -> Arrays:
            saved.append(steps_taken(self))
            return {}

    settings = training_settings(checkpoint_minutes=1.0, validations=2)
    plan = plan_for(tmp_path, settings)
    run(Watch(), settings=settings, plan=plan, validate=lambda _: {"f@20": 0.0}, clock=(25.0 * i for i in count()))
    assert saved == [3, 6, 9, 12]
    saved.clear()
    run(Watch(), settings=settings, plan=plan, validate=lambda _: {"f@20": 0.0})
    assert saved == [6, 12], "with the clock standing still only validations remain"


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
    assert run(CountingLearner(), plan=plan_for(tmp_path / "new", training_settings(), resume=True)).step == STEPS
    assert events == []


def by_weights(learner: Learner) -> Mapping[str, float]:
    """A score of the weights alone that falls while they are learned, so that the first validation is the best."""
    first = weights_of(fresh_attention(model_settings(), ring_tree(), seed=training_settings().seed))["node_table"]
    return {"f@20": -float(np.linalg.norm(learner.model_arrays()["attention/node_table"] - first))}


@pytest.mark.parametrize(("patience", "normalisation"), [(10, "batch"), (1, "layer")])
def test_stopped_after_any_step_and_resumed_the_bytes_are_the_same(
    tmp_path: Path, patience: int, normalisation: str
) -> None:
    settings = training_settings(patience=patience)
    sizes = model_settings(dropout=0.2, normalisation=normalisation)
    whole = torch_learner(settings, model=sizes)
    expected = run(whole, settings=settings, validate=by_weights)
    assert (expected.step, expected.best_step) == (STEPS if patience == 10 else 6, 3)
    for stop_after in range(1, expected.step):
        directory, events = tmp_path / str(stop_after), list[Event]()
        with pytest.raises(InterruptedTraining):
            run(
                torch_learner(settings, model=sizes),
                settings=settings,
                validate=by_weights,
                plan=plan_for(directory, settings),
                stop_after=stop_after,
            )
        resumed = torch_learner(settings, model=sizes)
        plan = plan_for(directory, settings, resume=True)
        progress = run(resumed, settings=settings, validate=by_weights, plan=plan, events=events)
        assert events[0] == Resumed(stop_after)
        assert progress == expected
        assert_same_bytes(resumed.model_arrays(), whole.model_arrays())
        assert_same_bytes(resumed.optimiser_arrays(), whole.optimiser_arrays())


def test_stopped_after_every_single_step_the_bytes_are_the_same(tmp_path: Path) -> None:
    settings = training_settings()
    whole = torch_learner(settings)
    expected = run(whole, validate=by_weights)
    for _ in range(STEPS - 1):
        with pytest.raises(InterruptedTraining):
            run(
                torch_learner(settings),
                validate=by_weights,
                plan=plan_for(tmp_path, settings, resume=True),
                stop_after=1,
            )
    last = torch_learner(settings)
    assert run(last, validate=by_weights, plan=plan_for(tmp_path, settings, resume=True)) == expected
    assert_same_bytes(last.model_arrays(), whole.model_arrays())


def test_resuming_a_finished_run_gives_its_result_again(tmp_path: Path) -> None:
    settings = training_settings()
    plan = plan_for(tmp_path, settings, resume=True)
    first, again = torch_learner(settings), torch_learner(settings)
    expected = run(first, validate=by_weights, plan=plan)
    events = list[Event]()
    assert run(again, validate=by_weights, plan=plan, events=events) == expected
    assert events == [Resumed(STEPS)]
    assert_same_bytes(again.model_arrays(), first.model_arrays())


def test_a_checkpoint_of_other_settings_or_data_is_refused(tmp_path: Path) -> None:
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
    often = training_settings(checkpoint_minutes=0.0)
    progress = run(CountingLearner(), settings=often, plan=plan_for(tmp_path, often, resume=True))
    assert progress.step == STEPS, "how often checkpoints are written may change"


@pytest.mark.parametrize(
    "manifest", [{"kind": "beamtree model"}, {"kind": "beamtree checkpoint", "format_version": 99}]
)
def test_what_is_no_checkpoint_of_this_version_is_refused(tmp_path: Path, manifest: dict[str, Any]) -> None:
    write_bundle(tmp_path, manifest, files={})
    with pytest.raises(ArtefactError, match=r"expected .*beamtree checkpoint.*, format 2"):
        run(CountingLearner(), plan=plan_for(tmp_path, training_settings(), resume=True))


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    settings = training_settings()
    with pytest.raises(InterruptedTraining):
        run(CountingLearner(), plan=plan_for(tmp_path, settings), stop_after=4)
    (state,) = tmp_path.glob("state-*.safetensors")
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(content)
    with pytest.raises(ArtefactError, match="is damaged"):
        run(CountingLearner(), plan=plan_for(tmp_path, settings, resume=True))


@pytest.mark.parametrize(("most", "steps"), [(1, 1), (23, 2), (24, 3), (10_000, 12)])
def test_a_bound_on_instances_ends_training_early(most: int, steps: int) -> None:
    """Forty instances in batches of eight: 2.4 epochs are twelve steps."""
    progress = run(CountingLearner(), settings=training_settings(most_instances=most))
    assert progress.step == steps
