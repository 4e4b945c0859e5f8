from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import Artefact
from beamtree.data.interactions import InteractionLog
from beamtree.errors import DataError, InputError, UnknownIdsError
from beamtree.retrieval import retriever as retriever_module
from beamtree.retrieval.retriever import Retriever
from tests.small import random_tree, small_config, stirred_model, weights_of

NAMES = [f"i{number:02}" for number in range(12)]
NUMBERS = [100 + 7 * number for number in range(12)]
POPULARITY = [3, 9, 0, 4, 9, 1, 2, 5, 0, 7, 8, 6]
"""From the most popular on: 1, 4 (as often, but later), 10, 9, 11, 7, 3, 0, 6, 5, 2, 8."""


def artefact_with(ids: list[Any]) -> Artefact:
    """Twelve items; those with even numbers are red, the others blue, the last has no colour. Histories of five."""
    config = small_config(retrieval={"beam_width": 12})
    tree = random_tree(12, branching=2, seed=0)
    colours = ["red", "blue"] * 5 + ["red", None]
    return Artefact(
        config=config,
        weights=weights_of(stirred_model(config.model, tree, seed=0)),
        tree=tree,
        popularity=np.array(POPULARITY),
        item_table=pl.DataFrame({"item_id": ids, "category": colours, "price": list(range(12))}),
        data_fingerprint="",
    )


@pytest.fixture(scope="module")
def retriever() -> Retriever:
    return Retriever(artefact_with(NAMES))


def dense_scan(retriever: Retriever, history: list[int], *, without: set[int]) -> list[str]:
    """All items but some, ranked by the engine's exact scan: a beam of twelve keeps everything."""
    padded = np.array([[-1] * (5 - len(history[-5:])) + history[-5:]], dtype=np.int32)
    ranked = retriever.engine.scan(padded, k=12).items[0].tolist()
    return [NAMES[item] for item in ranked if item not in without]


def items_of(table: pl.DataFrame, request: int = 0) -> list[Any]:
    key = table.columns[0]
    keys = table[key].unique(maintain_order=True)
    return table.filter(pl.col(key) == keys[request])["item_id"].to_list()


def test_raw_ids_in_raw_ids_out(retriever: Retriever) -> None:
    table = retriever.recommend_histories([["i03", "i07"], ["i01"]], k=4)
    assert table.schema == {"request": pl.Int64, "item_id": pl.String, "score": pl.Float32, "rank": pl.Int32}
    assert table["request"].to_list() == [0] * 4 + [1] * 4
    assert table["rank"].to_list() == [1, 2, 3, 4] * 2
    assert items_of(table, 0) == dense_scan(retriever, [3, 7], without={3, 7})[:4]
    assert items_of(table, 1) == dense_scan(retriever, [1], without={1})[:4]
    scores = table.filter(pl.col("request") == 0)["score"]
    assert scores.null_count() == 0
    assert scores.to_list() == sorted(scores.to_list(), reverse=True)


def test_integer_ids_give_the_same_answers_as_texts(retriever: Retriever) -> None:
    by_number = Retriever(artefact_with(NUMBERS))
    table = by_number.recommend_histories([[NUMBERS[3], NUMBERS[7]]], k=6)
    assert table["item_id"].dtype == pl.Int64
    expected = items_of(retriever.recommend_histories([["i03", "i07"]], k=6))
    assert [NUMBERS.index(item) for item in items_of(table)] == [NAMES.index(item) for item in expected]


def test_ids_of_the_other_kind_are_refused(retriever: Retriever) -> None:
    with pytest.raises(DataError, match="texts"):
        retriever.recommend_histories([[3]], k=2)
    with pytest.raises(DataError, match="integers"):
        Retriever(artefact_with(NUMBERS)).recommend_histories([["i03"]], k=2)


def test_unknown_ids_are_skipped_wherever_they_stand(retriever: Retriever) -> None:
    clean = retriever.recommend_histories([["i03", "i07"]], k=12)
    mixed = retriever.recommend_histories([["??", "i03", "!!", "i07", "..."]], k=12)
    assert mixed.equals(clean)


def test_seen_items_come_back_only_when_asked_for(retriever: Retriever) -> None:
    seen = [["i03", "i07", "i03"]]
    assert set(items_of(retriever.recommend_histories(seen, k=12))) == set(NAMES) - {"i03", "i07"}
    everything = retriever.recommend_histories(seen, k=12, exclude_seen=False)
    assert items_of(everything) == dense_scan(retriever, [3, 7, 3], without=set())


def test_a_long_history_is_read_from_its_end_but_excluded_whole(retriever: Retriever) -> None:
    long = [NAMES[item] for item in [0, 1, 2, 8] * 50 + [3, 4, 5, 6, 7]]
    last = retriever.recommend_histories([long[-5:]], k=12, exclude_seen=False)
    assert retriever.recommend_histories([long], k=12, exclude_seen=False).equals(last)
    assert items_of(retriever.recommend_histories([long], k=12)) == [
        item for item in items_of(last) if item in ("i09", "i10", "i11")
    ]


def test_more_than_there_is_gives_all_there_is(retriever: Retriever) -> None:
    table = retriever.recommend_histories([["i03"]], k=500)
    assert sorted(items_of(table)) == sorted(set(NAMES) - {"i03"})
    assert table["rank"].to_list() == list(range(1, 12))
    assert len(retriever.recommend_histories([["i03"]])) == 11, "k is 20 unless told otherwise"


def test_whoever_is_unknown_gets_what_is_popular(retriever: Retriever) -> None:
    table = retriever.recommend_histories([["i03"], ["??"], []], k=4)
    assert items_of(table, 0) == dense_scan(retriever, [3], without={3})[:4]
    for request in (1, 2):
        answer = table.filter(pl.col("request") == request)
        assert answer["item_id"].to_list() == ["i01", "i04", "i10", "i09"]
        assert answer["score"].null_count() == 4
        assert answer["rank"].to_list() == [1, 2, 3, 4]


def test_popular_items_pass_the_same_filters(retriever: Retriever) -> None:
    table = retriever.recommend_histories([[]], k=4, allow=["i04", "i02", "i09"], exclude=["i04", "unknown"])
    assert items_of(table) == ["i09", "i02"]


def test_an_unknown_history_is_an_error_where_wished(retriever: Retriever) -> None:
    with pytest.raises(UnknownIdsError, match=r"2 of 3 histories hold no item that the model knows"):
        retriever.recommend_histories([["i03"], ["??"], []], without_known_items="error")
    assert len(retriever.recommend_histories([["i03"]], k=2, without_known_items="error")) == 2


def test_only_allowed_items_come_back(retriever: Retriever) -> None:
    full = dense_scan(retriever, [3], without={3})
    allowed = ["i01", "i03", "i08", "never heard of"]
    by_ids = retriever.recommend_histories([["i03"]], k=12, allow=allowed)
    assert items_of(by_ids) == [item for item in full if item in ("i01", "i08")]
    excluded = retriever.recommend_histories([["i03"]], k=12, exclude=["i01", "i08"])
    assert items_of(excluded) == [item for item in full if item not in ("i01", "i08")]
    assert len(retriever.recommend_histories([["i03"]], allow=[])) == 0


def test_a_condition_on_the_item_table_allows(retriever: Retriever) -> None:
    """The item without a colour is neither red nor anything else."""
    full = dense_scan(retriever, [3], without={3})
    red = retriever.recommend_histories([["i03"]], k=12, allow=pl.col("category") == "red")
    assert items_of(red) == [item for item in full if int(item[1:]) % 2 == 0]
    cheap_blue = (pl.col("category") != "red") & (pl.col("price") < 6)
    assert set(items_of(retriever.recommend_histories([["i03"]], k=12, allow=cheap_blue))) == {"i01", "i05"}
    without_one = retriever.recommend_histories([["i03"]], k=12, allow=pl.lit(True), exclude=["i01"])
    assert items_of(without_one) == [item for item in full if item != "i01"]
    best_price = retriever.recommend_histories([["i03"]], k=12, allow=pl.col("price") == pl.col("price").max())
    assert items_of(best_price) == ["i11"]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (pl.col("colour") == "red", "columns item_id, category, price"),
        (pl.col("price") + 1, "true or false for each item, got Int64"),
    ],
)
def test_a_condition_that_cannot_be_used_is_refused(retriever: Retriever, condition: pl.Expr, message: str) -> None:
    with pytest.raises(InputError, match=message):
        retriever.recommend_histories([["i03"]], allow=condition)


def log_of(rows: list[tuple[Any, Any, int]]) -> InteractionLog:
    return InteractionLog(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))


LOG = log_of([("u2", "i07", 9), ("u1", "i01", 5), ("u2", "i03", 1), ("u3", "none", 2), ("u1", "none", 6)])


def test_users_of_a_log_are_asked_for_by_their_history_in_time(retriever: Retriever) -> None:
    (table,) = retriever.recommend_users(LOG, k=3)
    assert table.columns == ["user_id", "item_id", "score", "rank"]
    assert table["user_id"].unique(maintain_order=True).to_list() == ["u1", "u2", "u3"]
    bare = retriever.recommend_histories([["i01"], ["i03", "i07"], []], k=3)
    assert table.drop("user_id").equals(bare.drop("request"))
    (chosen,) = retriever.recommend_users(LOG, ["u2", "u1", "u2"], k=3)
    assert chosen["user_id"].to_list() == ["u2"] * 3 + ["u1"] * 3 + ["u2"] * 3
    assert items_of(chosen, 0)[:3] == items_of(bare, 1)


def test_users_come_in_portions(retriever: Retriever, monkeypatch: pytest.MonkeyPatch) -> None:
    (together,) = retriever.recommend_users(LOG, k=3)
    monkeypatch.setattr(retriever_module, "USERS_AT_A_TIME", 2)
    portions = list(retriever.recommend_users(LOG, k=3))
    assert [portion["user_id"].n_unique() for portion in portions] == [2, 1]
    assert pl.concat(portions).equals(together)
    (nobody,) = retriever.recommend_users(LOG, [], k=3)
    assert (nobody.schema, nobody.height) == (together.schema, 0)


def test_users_who_are_not_in_the_log_are_named(retriever: Retriever) -> None:
    with pytest.raises(UnknownIdsError, match=r"2 of 3 users are not in the log, the first is 'u8'"):
        list(retriever.recommend_users(LOG, ["u1", "u8", "u9"]))


def test_a_log_of_nothing_but_unknown_items_falls_back(retriever: Retriever) -> None:
    strange = log_of([(1, "x", 1), (2, "y", 2)])
    (table,) = retriever.recommend_users(strange, k=2)
    assert table["user_id"].to_list() == [1, 1, 2, 2]
    assert table["item_id"].to_list() == ["i01", "i04"] * 2
    with pytest.raises(UnknownIdsError):
        list(retriever.recommend_users(strange, without_known_items="error"))


def test_a_log_may_write_integer_ids_as_texts() -> None:
    by_number = Retriever(artefact_with(NUMBERS))
    (table,) = by_number.recommend_users(log_of([("u", "121", 1), ("u", "149", 2), ("u", "abc", 3)]), k=12)
    assert table.drop("user_id").equals(by_number.recommend_histories([[121, 149]], k=12).drop("request"))


def test_no_history_no_answer(retriever: Retriever) -> None:
    table = retriever.recommend_histories([])
    assert table.columns == ["request", "item_id", "score", "rank"]
    assert len(table) == 0
