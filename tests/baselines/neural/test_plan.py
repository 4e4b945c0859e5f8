"""How time becomes steps."""

from dataclasses import replace

import pytest

from beamtree.baselines.neural.learning import Pace, Plan, make_plan
from beamtree.baselines.neural.recipe import TUNED

RECIPE = replace(TUNED, batch_size=10, epochs=4.0, validations=5)


def plan(*, trials: int = 2, seconds: float | None, pace: Pace) -> Plan:
    return make_plan(RECIPE, num_instances=995, trials=trials, seconds=seconds, pace=pace)


def test_without_a_limit_epochs_decide() -> None:
    assert plan(seconds=None, pace=Pace(9.0, 9.0)) == Plan(400, 5, None, 40, None)


def test_plenty_of_time_changes_nothing_but_the_limits() -> None:
    assert plan(seconds=1000.0, pace=Pace(0.1, 0.1)) == Plan(400, 5, 800.0, 40, 100.0)


def test_steps_and_validations_fit_into_the_seconds() -> None:
    """100 s: 10 s for each of two trials, 80 s for the training, a fifth of which are for validations."""
    assert plan(seconds=100.0, pace=Pace(0.5, 4.0)) == Plan(
        steps=int((80 - 4 * 4) / 0.5), validations=4, seconds=80.0, trial_steps=int((10 - 4) / 0.5), trial_seconds=10.0
    )


@pytest.mark.parametrize("seconds", [0.0, 0.001, 5.0])
def test_there_is_always_a_step_and_a_validation(seconds: float) -> None:
    found = plan(seconds=seconds, pace=Pace(50.0, 50.0))
    assert (found.steps, found.validations, found.trial_steps) == (1, 1, 1)


def test_without_trials_all_seconds_are_the_training_s() -> None:
    assert plan(trials=0, seconds=100.0, pace=Pace(0.5, 0.0)).seconds == 100.0
