"""Updates of a model whose rows have weights: from event types, and by age."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.errors import DataError
from beamtree.recommender import DeepTreeRetriever
from tests.small import small_config

ENCODER: dict[str, Any] = {"width": 8, "layers": 1, "epochs": 1, "dropout": 0.0, "batch_positions": 60}
DAY, START = 86_400, 1_700_000_000


def shop_log(*, first_day: int, bought: str, seed: int) -> pl.DataFrame:
    """Thirty users, ten rows each, of which the last two are purchases of one item."""
    generator = np.random.default_rng(seed)
    rows = [
        (f"u{user:02}", f"i{generator.integers(0, 8)}", START + (first_day + place) * DAY + user, "view")
        if place < 8
        else (f"u{user:02}", bought, START + (first_day + place) * DAY + user, "buy")
        for user in range(30)
        for place in range(10)
    ]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "event_type"], orient="row")


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    config = small_config(
        model={"parts": ("tower", "memory")},
        estimator=ENCODER,
        log={"event_weights": {"view": 1, "buy": 4}, "target_events": ["buy"], "half_life_days": 10},
        retrieval={"exclude_seen": False},
    )
    folder = tmp_path / "shop"
    DeepTreeRetriever(config).fit(shop_log(first_day=0, bought="old", seed=0), progress=False).save(folder)
    return folder


def test_an_update_counts_new_rows_by_their_events_and_lets_old_ones_age(model_folder: Path) -> None:
    model = DeepTreeRetriever.load(model_folder)
    new = shop_log(first_day=20, bought="new", seed=1)
    model.update(new, force=True, progress=False)
    weights = model.fitted.update_state().log.sequences.weights
    assert weights is not None
    by_user = weights.reshape(30, 20)
    assert not by_user[:, [*range(8), *range(10, 18)]].any(), "views are history"
    np.testing.assert_allclose(by_user[:, 19] / by_user[:, 9], 4.0, rtol=1e-4)
    np.testing.assert_allclose(by_user[-1, 19], 4.0, rtol=1e-6)
    found = model.recommend_histories([["i1", "i2"]], k=1, exclude_seen=True)
    assert found["item_id"].to_list() == ["new"]
    model.save(model_folder)
    again = DeepTreeRetriever.load(model_folder).fitted.update_state().log.sequences.weights
    assert again is not None
    assert again.tobytes() == weights.tobytes()


def test_new_rows_with_a_type_of_no_known_weight_change_nothing(model_folder: Path) -> None:
    model = DeepTreeRetriever.load(model_folder)
    before = model.recommender.artefact
    new = shop_log(first_day=20, bought="new", seed=1).with_columns(pl.col("event_type").replace("view", "wish"))
    with pytest.raises(DataError, match="event_weights says nothing of 'wish'"):
        model.update(new, force=True, progress=False)
    assert model.recommender.artefact is before
