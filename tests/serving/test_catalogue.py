"""Items and conditions, on models made for the purpose."""

import tracemalloc
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import Artefact
from beamtree.data.raw_ids import RawIds
from beamtree.retrieval.allowed import ENTRY_BYTES, AllowedItems
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import Allow, RecommendOptions, RecommendRequest
from beamtree.serving.answers import answer_calls
from beamtree.serving.api_error import ApiError
from beamtree.serving.catalogue import Catalogue
from beamtree.serving.conditions import ItemConditions
from beamtree.serving.loaded_model import assemble
from beamtree.serving.schemas.recommend_body import Condition, Recommend
from beamtree.tree.item_tree import ItemTree
from tests.serving.models import random_artefact, random_weights


def sparse_model() -> Artefact:
    """Six items on eight leaves; the leaves 1 and 6 are vacant."""
    artefact = random_artefact(6)
    tree = ItemTree(2, np.array([2, -1, 0, 5, 1, 3, -1, 4], dtype=np.int32))
    weights = random_weights(artefact.config.model, tree, generator=np.random.default_rng(3))
    return Artefact(**(vars(artefact) | {"tree": tree, "weights": weights}))


def test_items_without_titles_can_be_found_by_id() -> None:
    artefact = random_artefact(4)
    table = artefact.item_table.with_columns(title=pl.Series(["Ämter", None, None, "Zebra"]))
    catalogue = Catalogue(
        table,
        ids=RawIds(artefact.items),
        popularity=np.array([1, 5, 3, 4]),
        most_popular=np.array([1, 3, 2, 0], dtype=np.int32),
    )
    assert catalogue.find("", limit=3)[0].tolist() == [1, 3, 2]
    assert catalogue.find("102", limit=3)[0].tolist() == [2]
    assert catalogue.find("äM", limit=3)[0].tolist() == [0]
    assert catalogue.find("10", limit=2)[1] == 4


def matching(table: pl.DataFrame, **condition: Any) -> list[int]:
    return np.flatnonzero(ItemConditions([Condition(**condition)]).mask(table)).tolist()


def test_conditions_on_dates_categories_and_flags() -> None:
    table = pl.DataFrame(
        {
            "item_id": [1, 2, 3, 4],
            "day": [date(2020, 1, 1), date(2021, 6, 1), None, date(2022, 1, 1)],
            "moment": [datetime(2020, 1, 1, hour) for hour in (9, 15, 18, 21)],
            "kind": pl.Series(["a", "b", None, "a"], dtype=pl.Categorical),
            "sold": [True, False, None, True],
            "size": pl.Series([1, 2, 3, 4], dtype=pl.UInt8),
            "length": [timedelta(days=1)] * 4,
            "shape": [{"x": 1}] * 4,
            "numbers": [[1, 2], [2], [], None],
            "pair": pl.Series([[1, 2], [2, 3], [4, 5], None], dtype=pl.Array(pl.Int64, 2)),
        }
    )
    assert matching(table, column="day", at_least="2021-01-01") == [1, 3]
    assert matching(table, column="day", one_of=["2020-01-01"]) == [0]
    assert matching(table, column="moment", at_least="2020-01-01T15:00", at_most="2020-01-01T20") == [1, 2]
    assert matching(table, column="kind", one_of=["a"]) == [0, 3]
    assert matching(table, column="kind", contains="b") == [1]
    assert matching(table, column="sold", one_of=[False]) == [1]
    assert matching(table, column="size", one_of=[4, 300, -1]) == [3]
    assert matching(table, column="size", at_most=2.5) == [0, 1]
    assert matching(table, column="numbers", one_of=[1, 7]) == [0]
    assert matching(table, column="pair", one_of=[2]) == [0, 1]
    assert matching(table, column="item_id", one_of=[]) == []
    for refused in (
        {"column": "sold", "at_least": True},
        {"column": "sold", "one_of": [1]},
        {"column": "numbers", "contains": "1"},
        {"column": "shape", "one_of": ["x"]},
    ):
        with pytest.raises(ApiError) as refusal:
            matching(table, **refused)
        assert (refusal.value.status, refusal.value.code) == (422, "wrong_type")


def test_masks_are_kept_for_the_next_request_and_forgotten_in_turn() -> None:
    artefact = random_artefact(10)
    room = 4 * (ENTRY_BYTES + 10)
    allowed = AllowedItems(artefact.item_table, ids=RawIds(artefact.items), cache_bytes=room)

    def mask(*conditions: Condition) -> Any:
        return allowed.resolve(RecommendOptions(allow=Allow(where=ItemConditions(conditions)))).mask

    years = [Condition(column="year", at_least=year) for year in range(1950, 1955)]
    first = mask(years[0])
    assert mask(years[0]) is first
    assert not first.flags.writeable
    assert allowed.cached_bytes == room / 4
    both = mask(years[1], years[2])
    assert mask(years[2], years[1]) is both
    mask(years[0])
    for year in years[1:4]:
        mask(year)
    assert mask(years[0]) is first
    assert mask(years[1], years[2]) is not both
    assert allowed.cached_bytes == room


def test_large_conditions_leave_little_behind() -> None:
    artefact = random_artefact(10)
    allowed = AllowedItems(artefact.item_table, ids=RawIds(artefact.items), cache_bytes=2**20)
    tracemalloc.start()
    for number in range(100):
        texts = [f"{number} {value}".ljust(1000) for value in range(100)]
        conditions = ItemConditions([Condition(column="title", one_of=texts)])
        assert len(conditions.key) == 32
        allowed.resolve(RecommendOptions(allow=Allow(where=conditions)))
    del texts, conditions
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert allowed.cached_bytes == 100 * (ENTRY_BYTES + 10)
    assert held < 2**19


def test_a_mask_larger_than_the_cache_is_not_kept() -> None:
    artefact = random_artefact(10)
    allowed = AllowedItems(artefact.item_table, ids=RawIds(artefact.items), cache_bytes=ENTRY_BYTES)
    options = RecommendOptions(allow=Allow(where=ItemConditions([Condition(column="year", at_least=1955)])))
    for _ in range(2):
        mask: Any = allowed.resolve(options).mask
        assert np.flatnonzero(mask).tolist() == [5, 6, 7, 8, 9]
    assert allowed.cached_bytes == 0


@pytest.mark.parametrize("parts", [("attention",), ("memory",), ("attention", "memory")])
@pytest.mark.parametrize("seed", range(3))
def test_explanations_agree_with_the_search(seed: int, parts: tuple[str, ...]) -> None:
    generator = np.random.default_rng(seed)
    model = assemble(random_artefact(200, seed=seed, parts=parts))
    for _ in range(10):
        history = [int(item) for item in generator.choice(220, size=generator.integers(1, 30)) + 100]
        request = Recommend(
            history=history + history[:3],
            exclude=history[:2] + [int(item) for item in generator.choice(200, size=3) + 100],
            k=int(generator.integers(1, 30)),
            beam=int(generator.integers(1, 40)),
            exclude_seen=bool(generator.integers(2)),
            allow={"where": [{"column": "category", "one_of": ["Drama", "War"]}]} if generator.integers(2) else None,
        )
        outcomes = answer_calls(model, [[request, request.model_copy(update={"explain": True})]], histories=None)
        assert isinstance(outcomes[0], list)
        found, explained = outcomes[0]
        assert [item["item_id"] for item in explained["items"]] == [item["item_id"] for item in found["items"]]
        scores = [item["score"] for item in found["items"]]
        assert [item["score"] for item in explained["items"]] == scores
        assert [item["path"][-1].score for item in explained["items"]] == pytest.approx(scores, rel=1e-4, abs=1e-5)
        assert [item["path"][-1].rank for item in explained["items"]] == [*range(1, len(scores) + 1)]
        assert all(item["parts"].keys() == set(parts) for item in explained["items"])
        given = [sum(item["parts"].values()) for item in explained["items"]]
        assert given == pytest.approx(scores, rel=1e-4, abs=1e-5)


def traced(recommender: Recommender, options: RecommendOptions) -> Any:
    [encoded] = recommender.encode([RecommendRequest(history=[100, 101], options=options)])
    [answer] = recommender.answer([encoded])
    return answer, recommender.trace(encoded, answer)


def test_a_vacant_leaf_is_never_explained() -> None:
    answer, trace = traced(Recommender(sparse_model()), RecommendOptions(k=10, beam=2, exclude_seen=False))
    assert sorted(answer.items) == [100, 101, 102, 103, 104, 105]
    assert all(len(path) == 3 for path in trace.paths)


def test_only_the_best_of_many_dropped_nodes_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = Recommender(random_artefact(200))

    def dropped() -> list[list[int]]:
        _, trace = traced(recommender, RecommendOptions(k=2, beam=6))
        return [level.dropped for level in trace.beam.levels]

    everything = dropped()
    assert max(map(len, everything)) > 3
    monkeypatch.setattr("beamtree.retrieval.explain.MAX_DROPPED", 3)
    assert dropped() == [nodes[:3] for nodes in everything]
