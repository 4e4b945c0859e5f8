"""Age takes weight from interactions, and never all of it."""

import numpy as np
import polars as pl
import pytest

from beamtree.config import Config
from beamtree.data.dataset import prepare_dataset
from beamtree.data.interactions import InteractionLog
from beamtree.data.prepare import prepare_log
from beamtree.data.row_weights import SMALLEST, decayed
from beamtree.data.sequences import Sequences
from beamtree.errors import DataError

DAY = 86_400
START = 1_700_000_000


def log_of(*days: float, unit: int = 1) -> InteractionLog:
    times = [round((START + day * DAY) * unit) for day in days]
    items = [f"i{number}" for number in range(len(days))]
    return InteractionLog(pl.DataFrame({"user_id": ["u"] * len(days), "item_id": items, "timestamp": times}))


@pytest.mark.parametrize("unit", [1, 1000])
def test_an_interaction_counts_half_after_every_half_life(unit: int) -> None:
    weights = prepare_dataset(log_of(0, 10, 15, 20, unit=unit), half_life_days=10).sequences.weights
    assert weights is not None
    np.testing.assert_allclose(weights, [0.25, 0.5, 0.5**0.5, 1.0], rtol=1e-6)


def test_without_a_half_life_and_where_all_are_of_one_moment_nothing_is_weighed() -> None:
    assert prepare_dataset(log_of(0, 10)).sequences.weights is None
    assert prepare_dataset(log_of(3, 3), half_life_days=1).sequences.weights is None


def test_age_multiplies_the_weight_of_the_event_and_never_makes_a_target_history() -> None:
    ages = np.array([1.0, 0.5, 1e-300, 0.5])
    assert decayed(np.array([5.0, 4.0, 1.0, 0.0], dtype=np.float32), ages).tolist() == [5.0, 2.0, SMALLEST, 0.0]


def test_times_that_are_no_dates_cannot_age() -> None:
    log = InteractionLog(pl.DataFrame({"user_id": [1, 1], "item_id": [1, 2], "timestamp": [0, 1]}))
    with pytest.raises(DataError, match=r"log.half_life_days = 7 needs dates, but the times of this log end at 1"):
        prepare_log(log, config=Config.resolve({"log": {"half_life_days": 7}}))


def test_a_fit_says_how_fast_interactions_lose_weight() -> None:
    prepared = prepare_log(log_of(*range(8)), config=Config.resolve({"log": {"half_life_days": 30}}))
    assert "an interaction counts half as much as one 30 days later" in prepared.lines()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(2, dtype=np.float32), "one per interaction"),
        (np.array([1, -1, 1], dtype=np.float32), "at least 0"),
        (np.array([1, np.nan, 1], dtype=np.float32), "at least 0"),
    ],
)
def test_sequences_refuse_weights_that_do_not_fit(weights: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Sequences(np.arange(3, dtype=np.int32), np.array([0, 3]), weights)
