"""Features of users and contexts enter attention: alone, without tower and memory, it learns what they decide."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.request import RecommendRequest
from tests.fitting.test_request_offsets import EIGHT, asked, groups, log_by_city, log_by_device
from tests.small import small_config

CONTEXT = {"features": {"context.device": "category"}}


def fitted(table: pl.DataFrame, users: pl.DataFrame | None = None, **options: Any) -> DeepTreeRetriever:
    config = small_config(
        data={"min_interactions": 2, "min_held_out": 2, "holdout": "last"},
        log=options.pop("log", {}),
        model={"parts": ("attention",)},
        training={"epochs": options.pop("epochs", 30), "negatives": 10, "learning_rate": 0.02},
        retrieval={"exclude_seen": False, "beam_width": 32},
    )
    return DeepTreeRetriever(config).fit(table, users=users, progress=False, **options)


@pytest.fixture(scope="module")
def by_device() -> DeepTreeRetriever:
    return fitted(log_by_device(), log=CONTEXT)


@pytest.mark.parametrize("history", [["a1", "b2", "a3"], ["b5"], []])
def test_the_context_decides(by_device: DeepTreeRetriever, history: list[str]) -> None:
    for device, group in (("phone", "a"), ("desktop", "b")):
        answer = asked(by_device, RecommendRequest(history=history, context={"device": device}, options=EIGHT))
        assert groups(answer) == group * 8
        assert answer.source == "beam"


def test_scores_and_explanations_follow_the_context(by_device: DeepTreeRetriever) -> None:
    history, items = ["a1", "b2"], ["a3", "b3"]
    shares = {}
    for device in ("phone", "desktop"):
        around = {"device": device}
        scored = by_device.score_histories([history], [items], context=[around])["score"].to_list()
        explained = by_device.recommender.explain(history, items, context=around)
        np.testing.assert_allclose([one.parts["attention"] for one in explained], scored, rtol=1e-5)
        shares[device] = scored[0] - scored[1]
    assert shares["phone"] > 0.0 > shares["desktop"]


def test_a_table_of_which_nothing_is_read_changes_no_byte() -> None:
    log, users = log_by_city()
    plain, described, reading = (
        fitted(log, table, epochs=1).recommender.artefact.weights for table in (None, users.select("user_id"), users)
    )
    assert plain.keys() == described.keys()
    for name, array in plain.items():
        assert array.tobytes() == described[name].tobytes(), name
    assert reading.keys() - plain.keys() == {"attention/offset.user.embedding"}


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, again = (fitted(log_by_device(), log=CONTEXT, epochs=2).recommender.artefact.weights for _ in range(2))
    for name, array in first.items():
        assert array.tobytes() == again[name].tobytes(), name
    assert np.abs(first["attention/offset.context.embedding"]).max() > 0.0
