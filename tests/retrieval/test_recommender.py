from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from beamtree.artefact import Artefact
from beamtree.data.interactions import InteractionLog
from beamtree.data.requests import Histories, Requests
from beamtree.errors import ColdStartError, DataError, IdTypeError, InputError, UnknownIdsError, UnknownUsersError
from beamtree.retrieval import tables
from beamtree.retrieval.histories import LogHistories
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import Allow, RecommendOptions, RecommendRequest
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
        weights={
            f"attention/{name}": array for name, array in weights_of(stirred_model(config.model, tree, seed=0)).items()
        },
        tree=tree,
        popularity=np.array(POPULARITY),
        item_table=pl.DataFrame({"item_id": ids, "category": colours, "price": list(range(12))}),
        data_fingerprint="",
    )


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    return Recommender(artefact_with(NAMES))


def for_histories(recommender: Recommender, histories: Any, **options: Any) -> pl.DataFrame:
    return tables.recommend_histories(recommender, histories, options=RecommendOptions(**options))


def for_users(
    recommender: Recommender, log: InteractionLog, users: Any = None, **options: Any
) -> Iterator[pl.DataFrame]:
    return iter(tables.recommend_users(recommender, log, users=users, options=RecommendOptions(**options)))


def dense_scan(recommender: Recommender, history: list[int], *, without: set[int]) -> list[str]:
    """All items but some, ranked by the engine's exact scan: a beam of twelve keeps everything."""
    ranked = recommender.engine.scan(Requests(Histories.of_lists([history])), k=12).items[0].tolist()
    return [NAMES[item] for item in ranked if item not in without]


def items_of(table: pl.DataFrame, request: int = 0) -> list[Any]:
    key = table.columns[0]
    keys = table[key].unique(maintain_order=True)
    return table.filter(pl.col(key) == keys[request])["item_id"].to_list()


def test_raw_ids_in_raw_ids_out(recommender: Recommender) -> None:
    table = for_histories(recommender, [["i03", "i07"], ["i01"]], k=4)
    assert table.schema == {"request": pl.Int64, "item_id": pl.String, "score": pl.Float32, "rank": pl.Int32}
    assert table["request"].to_list() == [0] * 4 + [1] * 4
    assert table["rank"].to_list() == [1, 2, 3, 4] * 2
    assert items_of(table, 0) == dense_scan(recommender, [3, 7], without={3, 7})[:4]
    assert items_of(table, 1) == dense_scan(recommender, [1], without={1})[:4]
    scores = table.filter(pl.col("request") == 0)["score"]
    assert scores.null_count() == 0
    assert scores.to_list() == sorted(scores.to_list(), reverse=True)


def test_integer_ids_give_the_same_answers_as_texts(recommender: Recommender) -> None:
    by_number = Recommender(artefact_with(NUMBERS))
    table = for_histories(by_number, [[NUMBERS[3], NUMBERS[7]]], k=6)
    assert table["item_id"].dtype == pl.Int64
    expected = items_of(for_histories(recommender, [["i03", "i07"]], k=6))
    assert [NUMBERS.index(item) for item in items_of(table)] == [NAMES.index(item) for item in expected]


def test_ids_of_the_other_kind_are_refused(recommender: Recommender) -> None:
    with pytest.raises(DataError, match="texts"):
        for_histories(recommender, [[3]], k=2)
    with pytest.raises(DataError, match="integers"):
        for_histories(Recommender(artefact_with(NUMBERS)), [["i03"]], k=2)


def test_unknown_ids_are_skipped_wherever_they_stand(recommender: Recommender) -> None:
    clean = for_histories(recommender, [["i03", "i07"]], k=12)
    mixed = for_histories(recommender, [["??", "i03", "!!", "i07", "..."]], k=12)
    assert mixed.equals(clean)


def test_seen_items_come_back_only_when_asked_for(recommender: Recommender) -> None:
    seen = [["i03", "i07", "i03"]]
    assert set(items_of(for_histories(recommender, seen, k=12))) == set(NAMES) - {"i03", "i07"}
    everything = for_histories(recommender, seen, k=12, exclude_seen=False)
    assert items_of(everything) == dense_scan(recommender, [3, 7, 3], without=set())


def test_a_long_history_is_read_from_its_end_but_excluded_whole(recommender: Recommender) -> None:
    long = [NAMES[item] for item in [0, 1, 2, 8] * 50 + [3, 4, 5, 6, 7]]
    last = for_histories(recommender, [long[-5:]], k=12, exclude_seen=False)
    assert for_histories(recommender, [long], k=12, exclude_seen=False).equals(last)
    assert items_of(for_histories(recommender, [long], k=12)) == [
        item for item in items_of(last) if item in ("i09", "i10", "i11")
    ]


def test_more_than_there_is_gives_all_there_is(recommender: Recommender) -> None:
    table = for_histories(recommender, [["i03"]], k=500)
    assert sorted(items_of(table)) == sorted(set(NAMES) - {"i03"})
    assert table["rank"].to_list() == list(range(1, 12))
    assert len(for_histories(recommender, [["i03"]])) == 11, "k is 20 unless told otherwise"


def test_whoever_is_unknown_gets_what_is_popular(recommender: Recommender) -> None:
    table = for_histories(recommender, [["i03"], ["??"], []], k=4)
    assert items_of(table, 0) == dense_scan(recommender, [3], without={3})[:4]
    for request in (1, 2):
        answer = table.filter(pl.col("request") == request)
        assert answer["item_id"].to_list() == ["i01", "i04", "i10", "i09"]
        assert answer["score"].null_count() == 4
        assert answer["rank"].to_list() == [1, 2, 3, 4]


def test_popular_items_pass_the_same_filters(recommender: Recommender) -> None:
    table = for_histories(recommender, [[]], k=4, allow=["i04", "i02", "i09"], exclude=["i04", "unknown"])
    assert items_of(table) == ["i09", "i02"]


def test_an_unknown_history_is_an_error_where_wished(recommender: Recommender) -> None:
    with pytest.raises(ColdStartError, match=r"2 of 3 histories hold no item that the model knows"):
        for_histories(recommender, [["i03"], ["??"], []], fallback="error")
    assert len(for_histories(recommender, [["i03"]], k=2, fallback="error")) == 2


def test_only_allowed_items_come_back(recommender: Recommender) -> None:
    full = dense_scan(recommender, [3], without={3})
    allowed = ["i01", "i03", "i08", "never heard of"]
    by_ids = for_histories(recommender, [["i03"]], k=12, allow=allowed)
    assert items_of(by_ids) == [item for item in full if item in ("i01", "i08")]
    excluded = for_histories(recommender, [["i03"]], k=12, exclude=["i01", "i08"])
    assert items_of(excluded) == [item for item in full if item not in ("i01", "i08")]
    assert len(for_histories(recommender, [["i03"]], allow=[])) == 0


def test_a_condition_on_the_item_table_allows(recommender: Recommender) -> None:
    """The item without a colour is neither red nor anything else."""
    full = dense_scan(recommender, [3], without={3})
    red = for_histories(recommender, [["i03"]], k=12, allow=pl.col("category") == "red")
    assert items_of(red) == [item for item in full if int(item[1:]) % 2 == 0]
    cheap_blue = (pl.col("category") != "red") & (pl.col("price") < 6)
    assert set(items_of(for_histories(recommender, [["i03"]], k=12, allow=cheap_blue))) == {"i01", "i05"}
    without_one = for_histories(recommender, [["i03"]], k=12, allow=pl.lit(True), exclude=["i01"])
    assert items_of(without_one) == [item for item in full if item != "i01"]
    best_price = for_histories(recommender, [["i03"]], k=12, allow=pl.col("price") == pl.col("price").max())
    assert items_of(best_price) == ["i11"]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (pl.col("colour") == "red", "columns item_id, category, price"),
        (pl.col("price") + 1, "true or false for each item, got Int64"),
    ],
)
def test_a_condition_that_cannot_be_used_is_refused(recommender: Recommender, condition: pl.Expr, message: str) -> None:
    with pytest.raises(InputError, match=message):
        for_histories(recommender, [["i03"]], allow=condition)


def log_of(rows: list[tuple[Any, Any, int]]) -> InteractionLog:
    return InteractionLog(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))


LOG = log_of([("u2", "i07", 9), ("u1", "i01", 5), ("u2", "i03", 1), ("u3", "none", 2), ("u1", "none", 6)])


def test_users_of_a_log_are_asked_for_by_their_history_in_time(recommender: Recommender) -> None:
    (table,) = for_users(recommender, LOG, k=3)
    assert table.columns == ["user_id", "item_id", "score", "rank"]
    assert table["user_id"].unique(maintain_order=True).to_list() == ["u1", "u2", "u3"]
    bare = for_histories(recommender, [["i01"], ["i03", "i07"], []], k=3)
    assert table.drop("user_id").equals(bare.drop("request"))
    (chosen,) = for_users(recommender, LOG, ["u2", "u1", "u2"], k=3)
    assert chosen["user_id"].to_list() == ["u2"] * 3 + ["u1"] * 3 + ["u2"] * 3
    assert items_of(chosen, 0)[:3] == items_of(bare, 1)


def test_users_come_in_portions(recommender: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    (together,) = for_users(recommender, LOG, k=3)
    monkeypatch.setattr(tables, "REQUESTS_AT_A_TIME", 2)
    portions = list(for_users(recommender, LOG, k=3))
    assert [portion["user_id"].n_unique() for portion in portions] == [2, 1]
    assert pl.concat(portions).equals(together)
    (nobody,) = for_users(recommender, LOG, [], k=3)
    assert (nobody.schema, nobody.height) == (together.schema, 0)


def test_users_who_are_not_in_the_log_are_named(recommender: Recommender) -> None:
    with pytest.raises(UnknownIdsError, match=r"2 of 3 users are not in the log, the first is 'u8'"):
        list(for_users(recommender, LOG, ["u1", "u8", "u9"]))


def test_a_log_of_nothing_but_unknown_items_falls_back(recommender: Recommender) -> None:
    strange = log_of([(1, "x", 1), (2, "y", 2)])
    (table,) = for_users(recommender, strange, k=2)
    assert table["user_id"].to_list() == [1, 1, 2, 2]
    assert table["item_id"].to_list() == ["i01", "i04"] * 2
    with pytest.raises(UnknownIdsError):
        list(for_users(recommender, strange, fallback="error"))


def test_a_log_may_write_integer_ids_as_texts() -> None:
    by_number = Recommender(artefact_with(NUMBERS))
    (table,) = for_users(by_number, log_of([("u", "121", 1), ("u", "149", 2), ("u", "abc", 3)]), k=12)
    assert table.drop("user_id").equals(for_histories(by_number, [[121, 149]], k=12).drop("request"))


def test_no_history_no_answer(recommender: Recommender) -> None:
    table = for_histories(recommender, [])
    assert table.columns == ["request", "item_id", "score", "rank"]
    assert len(table) == 0


def one(recommender: Recommender, **request: Any) -> Any:
    return recommender.recommend([RecommendRequest(**request)])[0]


def test_requests_of_all_kinds_are_answered_in_their_order(recommender: Recommender) -> None:
    """Different k, beams and filters, cold starts among them, each as if it were asked alone."""
    red = pl.col("category") == "red"
    requests = [
        RecommendRequest(history=["i03"], options=RecommendOptions(k=3)),
        RecommendRequest(history=["??"], options=RecommendOptions(k=2)),
        RecommendRequest(history=["i03", "i07"], options=RecommendOptions(k=5, beam=4)),
        RecommendRequest(history=["i05"], exclude=["i01"], options=RecommendOptions(k=3)),
        RecommendRequest(history=["i03"], options=RecommendOptions(k=12, allow=red)),
        RecommendRequest(history=["i09"], options=RecommendOptions(k=12, allow=red)),
    ]
    answers = recommender.recommend(requests)
    for request, answer in zip(requests, answers, strict=True):
        assert answer == recommender.recommend([request])[0]
    assert [answer.source for answer in answers] == ["beam", "popularity", *["beam"] * 4]
    assert [len(answer.items) for answer in answers] == [3, 2, 5, 3, 6, 6]
    assert answers[1].items == ["i01", "i04"]
    assert answers[3].items == dense_scan(recommender, [5], without={5, 1})[:3]


def test_requests_that_agree_are_searched_at_once(recommender: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    search = recommender.engine.search

    def counting(requests: Requests, *, k: int, beam_width: int) -> Any:
        sizes.append(len(requests))
        return search(requests, k=k, beam_width=beam_width)

    monkeypatch.setattr(recommender.engine, "search", counting)
    shared = [RecommendOptions(k=3, allow=Allow(ids=allowed)) for allowed in (["i01", "i02"], ["i02"], ["i01", "i02"])]
    recommender.recommend([RecommendRequest(history=["i03"], options=options) for options in shared])
    assert sorted(sizes) == [1, 2]


def test_a_condition_is_evaluated_once(recommender: Recommender) -> None:
    evaluated: list[str] = []

    class Cheap:
        key = "cheap"

        def mask(self, item_table: pl.DataFrame) -> Any:
            evaluated.append(self.key)
            return (item_table["price"] < 4).to_numpy().copy()

    for _ in range(3):
        options = RecommendOptions(k=12, allow=Allow(ids=["i00", "i01", "i09"], where=Cheap()))
        assert sorted(one(recommender, history=["i03"], options=options).items) == ["i00", "i01"]
    assert evaluated == ["cheap"]


def test_what_is_unknown_is_reported_or_refused(recommender: Recommender) -> None:
    request = {"history": ["i03", "x"], "exclude": ["y"]}
    answer = one(recommender, **request, options=RecommendOptions(allow=["z", "i01"]))
    assert (answer.unknown_ids, answer.history_used) == (["x", "y", "z"], 1)
    with pytest.raises(UnknownIdsError, match="3 ids are unknown to the model, the first is 'x'") as refused:
        one(recommender, **request, options=RecommendOptions(allow=["z", "i01"], unknown="refuse"))
    assert refused.value.ids == ["x", "y", "z"]


def test_users_are_looked_up_where_histories_are_stored(recommender: Recommender) -> None:
    histories = LogHistories(LOG)
    requests = [RecommendRequest(user=user, options=RecommendOptions(k=3)) for user in ("u2", "u9")]
    known, unknown = recommender.recommend(requests, histories=histories)
    assert (known.user_known, known.items) == (True, one(recommender, history=["i03", "i07"]).items[:3])
    assert (unknown.user_known, unknown.source) == (False, "popularity")
    with pytest.raises(UnknownUsersError, match="'u9'"):
        recommender.recommend(
            [RecommendRequest(user="u9", options=RecommendOptions(unknown="refuse"))], histories=histories
        )
    with pytest.raises(InputError, match="no histories are stored"):
        recommender.recommend(requests)


@pytest.mark.parametrize(
    "column",
    [
        np.array(["i03", "i07"]),
        pl.Series(["i03", "i07"]),
        pl.Series(["i03", "i07"], dtype=pl.Categorical),
        pd.Series(["i03", "i07"]),
        pd.Index(["i03", "i07"]),
        pa.array(["i03", "i07"]),
        pa.chunked_array([["i03"], ["i07"]]),
        ("i03", "i07"),
        [np.str_("i03"), "i07"],
    ],
    ids=lambda column: f"{type(column).__module__}.{type(column).__name__}",
)
def test_ids_may_come_as_columns_of_any_library(recommender: Recommender, column: Any) -> None:
    expected = for_histories(recommender, [["i03", "i07"]], k=4, exclude=["i03", "i07"], exclude_seen=False)
    assert for_histories(recommender, [column], k=4, exclude=column, exclude_seen=False).equals(expected)
    allowed = for_histories(recommender, [["i01"]], allow=column)
    assert sorted(items_of(allowed)) == ["i03", "i07"]


@pytest.mark.parametrize("convert", [np.array, np.uint8, pl.Series, pd.Series, pa.array])
def test_integer_ids_may_come_as_columns_of_any_library(convert: Any) -> None:
    by_number = Recommender(artefact_with(NUMBERS))
    expected = for_histories(by_number, [[NUMBERS[3], NUMBERS[7]]], k=4)
    assert for_histories(by_number, [convert([NUMBERS[3], NUMBERS[7]])], k=4).equals(expected)
    assert for_histories(by_number, [[np.int16(NUMBERS[3]), NUMBERS[7]]], k=4).equals(expected)
    assert one(by_number, history=[2**80, NUMBERS[3]]).unknown_ids == [2**80]


def test_histories_may_be_a_column_of_lists(recommender: Recommender) -> None:
    expected = for_histories(recommender, [["i03", "i07"], ["i01"]], k=4)
    for column in (pl.Series([["i03", "i07"], ["i01"]]), pa.array([["i03", "i07"], ["i01"]])):
        assert for_histories(recommender, column, k=4).equals(expected)


@pytest.mark.parametrize(
    ("histories", "message"),
    [
        ("i03", r"histories: expected a list of lists of ids, got 'i03'. Give \[\['i03'\]\]"),
        (["i03", "i07"], r"got the id 'i03' in the place of a list. For one list give \[\['i03', ...\]\]"),
        ([7], "got the id 7 in the place of a list"),
        (7, "expected a list, got 7"),
        ([7.5], "expected a list, got 7.5"),
        ([[None]], "got None: drop missing ids first"),
        ([["i03", 7]], "history: the item ids of this model are texts, got 7: pass texts"),
    ],
)
def test_a_bare_id_is_not_a_list(recommender: Recommender, histories: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        for_histories(recommender, histories)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"allow": "i03"}, r"allow: expected a list of ids, got 'i03'. Give a list: \['i03'\]"),
        ({"exclude": "i03"}, "exclude: expected a list of ids"),
        ({"k": 0}, "k as an integer of at least 1, got 0"),
        ({"k": 2.5}, "k as an integer of at least 1, got 2.5"),
        ({"beam": 0}, "beam as an integer of at least 1, got 0"),
        ({"fallback": "popular"}, "fallback as one of 'popularity', 'error', got 'popular'"),
        ({"unknown": "skip"}, "unknown as one of 'ignore', 'report', 'refuse', got 'skip'"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    recommender: Recommender, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        for_histories(recommender, [["i03"]], **options)


def test_users_are_a_list_of_the_log_s_own_kind(recommender: Recommender) -> None:
    with pytest.raises(InputError, match=r"users: expected a list of ids, got 'u1'. Give a list: \['u1'\]"):
        list(for_users(recommender, LOG, "u1"))
    with pytest.raises(IdTypeError, match="users: the users of the log are texts, got 1"):
        list(for_users(recommender, LOG, [1]))


def test_a_request_names_somebody() -> None:
    with pytest.raises(InputError, match="needs a history, or a user"):
        RecommendRequest()
