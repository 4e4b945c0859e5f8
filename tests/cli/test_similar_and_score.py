"""Items near an item, and scores of chosen items, from the command line."""

from pathlib import Path

import polars as pl
import pytest

from beamtree.recommender import DeepTreeRetriever
from tests.cli.beamtree_command import Command
from tests.serving.models import save_model


@pytest.fixture
def model(folder: Path) -> DeepTreeRetriever:
    save_model(folder / "both", 60, parts=("attention", "memory"))
    rows = {"user_id": ["u, 1", "u, 1", "u2"], "item_id": [100, 131, 117], "timestamp": [1, 2, 3]}
    pl.DataFrame(rows).write_csv(folder / "log.csv")
    return DeepTreeRetriever.load(folder / "both")


def test_similar_items_are_shown_or_written(beamtree: Command, model: DeepTreeRetriever) -> None:
    written = beamtree("similar", "both", "--item", "120,101", "-k", "3", "--by", "memory", "--out", "near/items.csv")
    assert written.code == 0, written.err
    table = pl.read_csv("near/items.csv")
    assert table["similar_id"].to_list() == model.similar_items([120, 101], k=3, by="memory")["similar_id"].to_list()
    shown = beamtree("similar", "both", "--item", "120", "-k", "1")
    assert str(model.similar_items([120], k=1)["similar_id"][0]) in shown.out
    unknown = beamtree("similar", "both", "--item", "NOPE")
    assert unknown.code == 1
    assert "does not know NOPE (its item ids are integers such as" in unknown.message


def test_pairs_of_a_file_are_scored_as_recommendations_are(beamtree: Command, model: DeepTreeRetriever) -> None:
    best = model.recommend(interactions="log.csv", k=2)
    pairs = best.select(pl.col("user_id").alias("uid"), "item_id").vstack(
        pl.DataFrame({"uid": ["u2", "nobody"], "item_id": [9999, 100]})
    )
    pairs.write_csv("pairs.csv")
    log = pl.read_csv("log.csv").rename({"user_id": "uid"})
    log.write_csv("renamed.csv")
    reading = ("--log", "renamed.csv", "--column", "user_id=uid")
    scored = beamtree("score", "both", "--pairs", "pairs.csv", *reading, "--out", "scored.parquet")
    assert scored.code == 0, scored.err
    assert "2 of 6 pairs have no score" in scored.message
    scores = pl.read_parquet("scored.parquet")
    assert scores.columns == ["user_id", "item_id", "score"]
    assert scores["score"][:4].to_list() == pytest.approx(best["score"].to_list(), rel=1e-5)
    assert scores["score"][4:].to_list() == [None, None]


def test_items_are_scored_for_one_history(beamtree: Command, model: DeepTreeRetriever) -> None:
    best = model.recommend_histories([[100, 131]], k=1)
    shown = beamtree("score", "both", "--history", "100,131,NOPE", "--item", str(best["item_id"][0]))
    assert shown.code == 0, shown.err
    assert f"{best['score'][0]:.3f}" in shown.out
    assert "does not know NOPE" in shown.message
    for wrong in (("--history", "100"), ("--pairs", "log.csv"), ("--log", "log.csv", "--history", "100")):
        assert "Give either --pairs TABLE and --log LOG" in beamtree("score", "both", *wrong).message


@pytest.mark.usefixtures("model")
def test_ids_with_commas_are_given_as_json(beamtree: Command) -> None:
    table = beamtree("recommend", "both", "--log", "log.csv", "--users", '["u, 1"]', "-k", "1", "--out", "one.csv")
    assert table.code == 0, table.err
    assert pl.read_csv("one.csv")["user_id"].to_list() == ["u, 1"]
    assert "a JSON list" in beamtree("recommend", "both", "--history", "[1,").message


@pytest.mark.usefixtures("model")
def test_a_history_of_another_kind_gets_popular_items_and_is_told_why(beamtree: Command) -> None:
    shown = beamtree("recommend", "both", "--history", "NOPE", "-k", "2")
    assert shown.code == 0, shown.err
    assert "does not know NOPE (its item ids are integers such as" in shown.message
    assert "these are the most popular ones, without scores" in shown.message


@pytest.mark.usefixtures("model")
def test_users_who_get_popular_items_are_counted(beamtree: Command) -> None:
    Path("cold.csv").write_text("user_id,item_id,timestamp\na,100,1\nb,7,1\n")
    written = beamtree("recommend", "both", "--log", "cold.csv", "--out", "cold.parquet")
    assert "1 of 2 users have no item in the log that the model knows, the first is b" in written.message
