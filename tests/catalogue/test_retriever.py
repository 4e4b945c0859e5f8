"""Items that join and leave a model in Python: everything that it does works on at once."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import beamtree as bt
from beamtree.errors import DataError, UnknownIdsError
from beamtree.recommender import DeepTreeRetriever
from tests.small import small_config, two_group_log


def fitted(**data: str) -> DeepTreeRetriever:
    config = small_config(data={"min_interactions": 2, "min_held_out": 2} | data)
    items = pl.DataFrame({"item_id": [f"{group}{number}" for group in "ab" for number in range(10)]})
    items = items.with_columns(category=pl.col("item_id").str.head(1), price=pl.lit(1.5))
    return DeepTreeRetriever(config).fit(two_group_log(), items, progress=False)


def test_new_items_are_recommended_saved_scored_and_compared_at_once(tmp_path: Path) -> None:
    model = fitted()
    before = model.evaluate(baselines="none")
    new = pl.DataFrame({"item_id": ["a-new", "b-new"], "category": ["a", "b"], "price": [2, None]})
    first = pl.DataFrame({"user_id": ["x"] * 3, "item_id": ["a1", "a-new", "a2"], "timestamp": [1, 2, 3]})
    assert model.add_items(new, interactions=first) is model
    model.remove_items(["a0", "b3"])
    found = model.recommend_histories([["a1", "a-new"]], k=30, exclude_seen=False)["item_id"].to_list()
    assert len(found) == 20
    assert {"a-new", "b-new"} <= set(found)
    assert not {"a0", "b3"} & set(found)
    scores = model.score_histories([["a1"]], [["a-new", "a0", "never"]])["score"].to_list()
    assert scores[0] is not None
    assert scores[1:] == [None, None]
    assert "a0" not in model.similar_items(["a-new", "a0"], k=30)["similar_id"].to_list()
    assert model.explain(["a1"], "b-new").item_id == "b-new"
    assert "20 items" in repr(model)
    model.save(tmp_path / "model")
    loaded = bt.load(tmp_path / "model")
    again = loaded.recommend_histories([["a1", "a-new"]], k=30, exclude_seen=False)
    assert again["item_id"].to_list() == found
    after = loaded.evaluate(two_group_log(), baselines="none")
    assert after["exact"].num_users == before["exact"].num_users
    assert model.evaluate(baselines="none")["beam"] == after["beam"]
    assert after["beam"] != before["beam"], "removed items are missed"
    with pytest.raises(DataError, match="exist already, the first is 'a-new'"):
        loaded.add_items(new)
    with pytest.raises(UnknownIdsError, match="the first is 'nope'"):
        loaded.remove_items(["nope"])


def test_a_catalogue_of_the_item_table_is_found_again_for_an_evaluation(tmp_path: Path) -> None:
    model = fitted(catalogue="items").add_items(pl.DataFrame({"item_id": ["0-before-all-others"]}))
    model.save(tmp_path / "model")
    found = bt.load(tmp_path / "model").evaluate(two_group_log(), baselines="none")
    assert np.isfinite(found["beam"]["recall@20"])
