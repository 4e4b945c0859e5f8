"""What weights of interactions are for: purchases foreseen from views, and the taste of today before that of old."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.config import Config
from beamtree.data.interactions import InteractionLog, read_interactions
from beamtree.recommender import DeepTreeRetriever
from tests.small import assert_same_bytes, small_config

ENCODER: dict[str, Any] = {
    "width": 8,
    "layers": 1,
    "epochs": 6,
    "dropout": 0.0,
    "batch_positions": 60,
    "learning_rate": 0.02,
}
DAY = 86_400


def shop_log() -> pl.DataFrame:
    """Users a* view twelve items a*, mostly the first, and buy a10 or a11 now and then; users b* likewise."""
    generator = np.random.default_rng(0)
    rows = []
    for group in "ab":
        for user in range(40):
            for time in range(20):
                is_bought = generator.random() < 0.2
                item = generator.integers(10, 12) if is_bought else generator.integers(0, 4)
                rows.append((f"{group}{user:02}", f"{group}{item}", time, "buy" if is_bought else "view"))
    return pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "event_type"], orient="row")


def share_bought(config: Config, log: pl.DataFrame) -> float:
    """How much of the best two items for people who viewed two are those that people buy."""
    model = DeepTreeRetriever(config).fit(log, progress=False)
    found = model.recommend_histories([["a0", "a1"], ["b2", "b0"]], k=2)
    return float(found["item_id"].is_in(["a10", "a11", "b10", "b11"]).mean())  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", [("memory",), ("tower",), ("attention",)])
def test_purchases_are_foreseen_from_views_where_they_are_the_targets(parts: tuple[str, ...]) -> None:
    sections: dict[str, Any] = {
        "model": {"parts": parts},
        "estimator": ENCODER,
        "training": {"epochs": 6, "target_horizon": 4},
        "retrieval": {"exclude_seen": False},
    }
    log = shop_log()
    assert share_bought(small_config(**sections), log) <= 0.5
    assert share_bought(small_config(**sections, log={"target_events": ["buy"]}), log) == 1.0


def test_a_purchase_can_count_as_many_views() -> None:
    sections: dict[str, Any] = {"model": {"parts": ("memory",)}, "data": {"holdout": "none"}}
    heavy = small_config(**sections, log={"event_weights": {"buy": 5, "view": 1}})
    assert share_bought(small_config(**sections), shop_log()) == 0.0
    assert share_bought(heavy, shop_log()) == 1.0


def test_held_out_purchases_are_found_by_a_model_that_was_told_of_them() -> None:
    """The same labels for both: what the test users buy in the second half of their histories."""
    log = shop_log()
    sections: dict[str, Any] = {"model": {"parts": ("memory",)}, "retrieval": {"exclude_seen": False}}
    told = DeepTreeRetriever(small_config(**sections, log={"target_events": ["buy"]})).fit(log, progress=False)
    users = told.held_out()
    labels, offsets = users.labels(told.dataset.sequences, distinct=True)
    bought = told.dataset.items.ids.gather(labels).to_list()
    assert set(bought) <= {"a10", "a11", "b10", "b11"}
    plain = DeepTreeRetriever(small_config(**sections)).fit(log, progress=False)
    histories = [
        told.dataset.items.ids.gather(told.dataset.sequences.items[start:end]).to_list()
        for start, end in zip(users.history_start, users.history_end, strict=True)
    ]

    def recall(model: DeepTreeRetriever) -> float:
        found = model.recommend_histories(histories, k=2).group_by("request", maintain_order=True).agg("item_id")
        hits = [
            len(set(items) & set(bought[offsets[row] : offsets[row + 1]])) / (offsets[row + 1] - offsets[row])
            for row, items in found.iter_rows()
        ]
        return float(np.mean(hits))

    assert recall(told) > recall(plain) + 0.3


def test_what_people_like_of_late_counts_more_with_a_half_life() -> None:
    """For 300 days x followed h, in twenty histories; then y did, in six."""
    rows = []
    for number in range(26):
        day, after = (10 * number, "x") if number < 20 else (300 + number, "y")
        rows += [(f"u{number:02}", "h", day * DAY), (f"u{number:02}", after, day * DAY + 60)]
        rows += [(f"u{number:02}", f"o{number % 3}", day * DAY + 120)]
    schema = ["user_id", "item_id", "timestamp"]
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.col("timestamp") + 1_700_000_000)

    def best(**log: float) -> str:
        config = small_config(model={"parts": ("memory",)}, data={"holdout": "none"}, log=log)
        model = DeepTreeRetriever(config).fit(InteractionLog(frame), progress=False)
        return str(model.recommend_histories([["h"]], k=1)["item_id"][0])

    assert best() == "x"
    assert best(half_life_days=20) == "y"


def test_weights_of_one_give_the_bytes_of_no_weights() -> None:
    log = shop_log()
    models = [
        DeepTreeRetriever(
            small_config(
                model={"parts": ("tower", "memory", "attention")}, estimator={**ENCODER, "epochs": 1}, log=given
            )
        ).fit(log, progress=False)
        for given in ({}, {"event_weights": {"buy": 1, "view": 1}})
    ]
    plain, equal = (model.recommender.artefact for model in models)
    assert_same_bytes(dict(plain.weights), dict(equal.weights))
    assert plain.popularity.tobytes() == equal.popularity.tobytes()


def test_the_popular_items_of_a_model_are_those_that_people_buy() -> None:
    config = small_config(model={"parts": ("memory",)}, log={"target_events": ["buy"]})
    model = DeepTreeRetriever(config).fit(read_interactions(shop_log(), target_events=["buy"]), progress=False)
    found = model.recommend_histories([[]], k=4)
    assert set(found["item_id"]) == {"a10", "a11", "b10", "b11"}
