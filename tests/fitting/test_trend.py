"""The trend: what is popular of late, weighed on what people did after a moment."""

import numpy as np
import polars as pl
import pytest

from beamtree.data.interactions import InteractionLog
from beamtree.fitting.trend import KnownInteractions
from beamtree.model.memory import Memory
from beamtree.model.trend import Trend
from beamtree.recommender import DeepTreeRetriever
from tests.small import small_config

HOUR = 3600
START = 1_600_000_000


def test_interactions_fade_by_half() -> None:
    trend = Trend.count(np.array([0, 10, 20]), np.array([0, 1, 1], dtype=np.int32), num_items=3, half_life=10.0)
    assert trend.demand == pytest.approx(np.log1p([0.25, 0.5 + 1.0, 0.0]))
    assert trend.moment == 20.0


def news_log(*, days: int, seed: int = 0) -> InteractionLog:
    """Everybody reads what came out in the last twelve hours; nothing else explains a click."""
    rng = np.random.default_rng(seed)
    rows = []
    for hour in range(24 * days):
        for reader in rng.integers(0, 300, 40):
            story = 3 * max(0, hour - int(rng.integers(0, 12))) + int(rng.integers(0, 3))
            rows.append((int(reader), story, START + hour * HOUR + int(rng.integers(0, HOUR))))
    frame = pl.DataFrame(rows, schema={"user_id": pl.Int64, "item_id": pl.Int64, "timestamp": pl.Int64}, orient="row")
    return InteractionLog(frame.unique(["user_id", "item_id"], keep="first", maintain_order=True))


def fit(log: InteractionLog, **weights: float) -> DeepTreeRetriever:
    config = small_config(
        data={"holdout": "time", "min_held_out": 2, "held_out_shares": (0.03, 0.03)},
        model={"parts": ["memory"], "weights": weights},
    )
    return DeepTreeRetriever(config).fit(log, progress=False)


def test_a_fit_that_holds_out_by_time_weighs_the_trend_and_gains_by_it() -> None:
    log = news_log(days=6)
    with_trend, without = fit(log), fit(log, trend=0.0)
    found = with_trend.recommender.artefact.training["weighing"]["trend"]
    assert found["weight"] > 0.0
    assert found["recall"] > found["without"]
    assert "trend" not in without.recommender.artefact.training["weighing"]
    gained, plain = (model.recommender.artefact.metrics["test"]["recall@20"] for model in (with_trend, without))
    assert gained > 1.2 * plain


def test_the_trend_of_the_model_is_as_of_the_moment_when_the_test_begins() -> None:
    model = fit(news_log(days=6))
    memory = Memory.from_arrays(model.recommender.artefact.part("memory"))
    half_life = model.recommender.artefact.training["weighing"]["trend"]["half_life"]
    known = KnownInteractions.before(model.held_out(), model.dataset)
    assert known is not None
    assert np.array_equal(memory.trend.demand, known.trend(half_life).demand)
    assert memory.trend.moment == known.times.max()


def test_a_log_without_dates_has_no_trend() -> None:
    log = news_log(days=3)
    ordered = InteractionLog(log.frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("timestamp")))
    assert "trend" not in fit(ordered).recommender.artefact.training["weighing"]
