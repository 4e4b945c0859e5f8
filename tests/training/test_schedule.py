import math
from typing import Any

import pytest

from beamtree.training.schedule import FLOOR, Schedule, estimator_schedule, learning_rates, model_schedule
from tests.small import encoder_settings
from tests.training.runs import training_settings


def test_warm_up_is_linear_and_takes_at_most_a_tenth() -> None:
    settings = training_settings(learning_rate=0.5, warmup_steps=500, decay="constant")
    rate = learning_rates(settings, total_steps=100)
    assert [rate(step) for step in range(10)] == pytest.approx([0.05 * (step + 1) for step in range(10)])
    assert {rate(step) for step in range(10, 100)} == {0.5}
    short = learning_rates(training_settings(learning_rate=0.5, warmup_steps=2, decay="constant"), total_steps=100)
    assert [short(step) for step in range(4)] == [0.25, 0.5, 0.5, 0.5]


def test_cosine_falls_from_the_peak_through_its_half_to_nearly_nothing() -> None:
    settings = training_settings(learning_rate=0.4, warmup_steps=20, decay="cosine")
    rate = learning_rates(settings, total_steps=220)
    assert rate(20) == pytest.approx(0.4)
    assert rate(120) == pytest.approx(0.2)
    assert rate(20 + 50) == pytest.approx(0.2 * (1 + math.sqrt(0.5)))
    assert rate(219) < 1e-4
    after = [rate(step) for step in range(20, 220)]
    assert after == sorted(after, reverse=True)


def test_exponential_decay_reaches_one_eth_as_published() -> None:
    settings = training_settings(learning_rate=1e-3, warmup_steps=5000, decay="exponential")
    rate = learning_rates(settings, total_steps=200_000)
    assert rate(4999) == pytest.approx(1e-3)
    assert rate(5000) == pytest.approx(1e-3)
    assert rate(5000 + 15_000) == pytest.approx(1e-3 / math.e)
    assert rate(199_999) == FLOOR


def test_no_rate_falls_below_the_floor_or_rises_to_it() -> None:
    cosine = learning_rates(training_settings(learning_rate=1e-5, warmup_steps=0), total_steps=1000)
    assert cosine(999) == FLOOR == 1e-6
    tiny = learning_rates(training_settings(learning_rate=1e-8, warmup_steps=0), total_steps=1000)
    assert {tiny(step) for step in range(1000)} == {1e-8}


@pytest.mark.parametrize("decay", ["cosine", "exponential", "constant"])
def test_a_single_step_has_a_rate(decay: str) -> None:
    settings = training_settings(learning_rate=0.1, decay=decay)
    assert learning_rates(settings, total_steps=1)(0) == pytest.approx(0.1)


@pytest.mark.parametrize(("most", "steps"), [(None, 12), (1, 1), (23, 2), (24, 3), (10_000, 12)])
def test_a_model_trains_for_its_epochs_or_as_many_instances_as_it_may(most: int | None, steps: int) -> None:
    """Forty instances in batches of eight: 2.4 epochs are twelve steps."""
    schedule = model_schedule(training_settings(max_instances=most), num_instances=40)
    assert (schedule.total_steps, schedule.order.steps_per_epoch) == (steps, 5)
    assert max(schedule.validation_steps) == steps
    assert schedule.learning_rate(0) == 0.02


def test_validations_of_a_model_are_spread_evenly() -> None:
    schedule = model_schedule(training_settings(patience=7), num_instances=40)
    assert (sorted(schedule.validation_steps), schedule.patience) == ([3, 6, 9, 12], 7)


def estimator(**changes: Any) -> Schedule:
    """Of ten windows with 40 positions altogether, in steps of about 16: three steps an epoch."""
    settings = encoder_settings(**({"batch_positions": 16, "learning_rate": 0.5} | changes))
    return estimator_schedule(settings, num_items=5, num_windows=10, num_positions=40, seed=1)


def test_an_estimator_learns_for_its_epochs_or_from_so_many_positions() -> None:
    assert estimator(epochs=4).total_steps == 12
    assert estimator(epochs=0.7).total_steps == 2
    assert estimator(epochs=4, max_positions=80).total_steps == 6
    assert estimator(epochs=4, max_positions=8000).total_steps == 12
    assert estimator(epochs=1, max_positions=None).total_steps == 3
    assert estimator(epochs=1, batch_positions=1).order.steps_per_epoch == 10, "a window at least"
    assert [len(estimator().order.instances_of(step)) for step in range(3)] == [3, 3, 4]


def test_an_estimator_is_validated_evenly_and_warms_up_over_a_hundred_steps_or_a_tenth() -> None:
    schedule = estimator(epochs=8, validations=4, patience=2)
    assert (sorted(schedule.validation_steps), schedule.patience) == ([6, 12, 18, 24], 2)
    assert [schedule.learning_rate(step) for step in (0, 1, 2)] == [0.25, 0.5, 0.5], "a tenth of 24 steps"
    assert schedule.learning_rate(13) == pytest.approx(0.25), "half of the cosine's way"
    assert schedule.learning_rate(23) < 0.01
    assert "estimator.learning_rate (now 0.5)" in schedule.remedy
    constant = estimator(epochs=1000, decay="constant", max_positions=None)
    assert [constant.learning_rate(step) for step in (0, 49, 99, 100, 2999)] == [0.005, 0.25, 0.5, 0.5, 0.5]


def test_steps_over_a_sample_of_the_items_are_smaller_unless_a_setting_says_otherwise() -> None:
    settings = encoder_settings()
    small, large = settings.batch_positions_of(1_000), settings.batch_positions_of(1_000_000)
    assert large < small
    assert encoder_settings(batch_positions=7).batch_positions_of(1_000_000) == 7
