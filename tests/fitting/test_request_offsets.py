"""Features of users and contexts enter the tower: what they decide is learned, recommended, evaluated and updated."""

import numpy as np
import polars as pl
import pytest

from beamtree.data.request_features import RequestFeatures
from beamtree.evaluation.answers import BeamSearch
from beamtree.evaluation.protocol import evaluate
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.request import Recommendations, RecommendOptions, RecommendRequest
from tests.small import small_config

ITEMS = 30
"""Of either group: a0, a1, ..., b0, b1, ..."""


def log_by_device(*, first_time: int = 0, users: int = 60, length: int = 12) -> pl.DataFrame:
    """On the phone people meet items of one group, on the desktop of the other; what came before tells nothing."""
    generator = np.random.default_rng(first_time)
    rows = []
    for user in range(users):
        for place in range(length):
            group = "ab"[generator.integers(2)]
            device = {"a": "phone", "b": "desktop"}[group]
            rows.append((f"u{user:02}", f"{group}{generator.integers(ITEMS)}", first_time + place, device))
    return pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "device"], orient="row")


def log_by_city() -> tuple[pl.DataFrame, pl.DataFrame]:
    """A log of two cities that like different items, and the table of its users."""
    generator = np.random.default_rng(1)
    rows = [
        (f"u{user:02}", f"{'ab'[user % 2]}{generator.integers(ITEMS)}", place)
        for user in range(60)
        for place in range(12)
    ]
    log = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")
    cities = ["Oslo", "Rome"] * 30
    return log, pl.DataFrame({"user_id": [f"u{user:02}" for user in range(60)], "city": cities})


def fitted(
    table: pl.DataFrame, *, users: pl.DataFrame | None = None, **settings: dict[str, object]
) -> DeepTreeRetriever:
    config = small_config(
        data={"min_interactions": 2, "min_held_out": 2, "shuffle_ties": False, "holdout": "last"},
        model={"parts": ("tower", "memory")},
        estimator={
            "history_length": 5,
            "width": 16,
            "batch_positions": 64,
            "learning_rate": 0.02,
            "epochs": 12.0,
            "patience": 8,
        },
        memory={"repeats": 0.0},
        retrieval={"exclude_seen": False, "beam_width": 32},
        **settings,
    )
    return DeepTreeRetriever(config).fit(table, users=users, progress=False)


@pytest.fixture(scope="module")
def by_device() -> DeepTreeRetriever:
    return fitted(log_by_device(), log={"context_features": {"device": "category"}})


@pytest.fixture(scope="module")
def by_city() -> DeepTreeRetriever:
    log, users = log_by_city()
    return fitted(log, users=users)


def asked(model: DeepTreeRetriever, request: RecommendRequest) -> Recommendations:
    return model.recommender.recommend([request])[0]


def groups(answer: Recommendations) -> str:
    return "".join(str(item)[0] for item in answer.items)


EIGHT = RecommendOptions(k=8)


@pytest.mark.parametrize("history", [["a1", "b2", "a3"], ["b5"], []])
def test_the_context_decides(by_device: DeepTreeRetriever, history: list[str]) -> None:
    for device, group in (("phone", "a"), ("desktop", "b")):
        request = RecommendRequest(history=history, context={"device": device}, options=EIGHT)
        assert groups(asked(by_device, request)) == group * 8


def test_held_out_users_are_asked_in_the_context_of_what_is_held_out(by_device: DeepTreeRetriever) -> None:
    """Of 60 items an answer of 20 holds two thirds of the right half, or a third of everything."""
    search = BeamSearch(by_device.recommender.engine, 32)
    recalls = [
        evaluate(search, dataset, by_device.held_out(), config=by_device.config, cutoffs=(20,))["recall@20"]
        for dataset in (by_device.dataset, by_device.dataset.reading(RequestFeatures()))
    ]
    assert recalls[0] > 1.4 * recalls[1]
    assert by_device.evaluate(baselines="none")["beam"]["recall@20"] == recalls[0]


def test_users_with_features_and_no_history_get_what_their_group_likes(by_city: DeepTreeRetriever) -> None:
    for city, group in (("Oslo", "a"), ("Rome", "b")):
        answer = asked(by_city, RecommendRequest(history=[], user_features={"city": city}, options=EIGHT))
        assert groups(answer) == group * 8
        assert answer.source == "beam"
        assert answer.history_used == 0
    for nothing in ({}, {"city": None}):
        answer = asked(by_city, RecommendRequest(history=[], user_features=nothing, options=EIGHT))
        assert answer.source == "popularity"
        assert set(answer.scores) == {None}
