import math

import pytest

from beamtree.config import TrainingSettings
from beamtree.training.schedule import FLOOR, learning_rates


def test_warm_up_is_linear_and_takes_at_most_a_tenth() -> None:
    settings = TrainingSettings(learning_rate=0.5, warmup_steps=500, decay="constant")
    rate = learning_rates(settings, total_steps=100)
    assert [rate(step) for step in range(10)] == pytest.approx([0.05 * (step + 1) for step in range(10)])
    assert {rate(step) for step in range(10, 100)} == {0.5}
    short = learning_rates(TrainingSettings(learning_rate=0.5, warmup_steps=2, decay="constant"), total_steps=100)
    assert [short(step) for step in range(4)] == [0.25, 0.5, 0.5, 0.5]


def test_cosine_falls_from_the_peak_through_its_half_to_nearly_nothing() -> None:
    settings = TrainingSettings(learning_rate=0.4, warmup_steps=20, decay="cosine")
    rate = learning_rates(settings, total_steps=220)
    assert rate(20) == pytest.approx(0.4)
    assert rate(120) == pytest.approx(0.2)
    assert rate(20 + 50) == pytest.approx(0.2 * (1 + math.sqrt(0.5)))
    assert rate(219) < 1e-4
    after = [rate(step) for step in range(20, 220)]
    assert after == sorted(after, reverse=True)


def test_exponential_decay_reaches_one_eth_as_published() -> None:
    settings = TrainingSettings(learning_rate=1e-3, warmup_steps=5000, decay="exponential")
    rate = learning_rates(settings, total_steps=200_000)
    assert rate(4999) == pytest.approx(1e-3)
    assert rate(5000) == pytest.approx(1e-3)
    assert rate(5000 + 15_000) == pytest.approx(1e-3 / math.e)
    assert rate(199_999) == FLOOR


def test_no_rate_falls_below_the_floor_or_rises_to_it() -> None:
    cosine = learning_rates(TrainingSettings(learning_rate=1e-5, warmup_steps=0), total_steps=1000)
    assert cosine(999) == FLOOR == 1e-6
    tiny = learning_rates(TrainingSettings(learning_rate=1e-8, warmup_steps=0), total_steps=1000)
    assert {tiny(step) for step in range(1000)} == {1e-8}


@pytest.mark.parametrize("decay", ["cosine", "exponential", "constant"])
def test_a_single_step_has_a_rate(decay: str) -> None:
    settings = TrainingSettings.model_validate({"learning_rate": 0.1, "decay": decay})
    assert learning_rates(settings, total_steps=1)(0) == pytest.approx(0.1)
