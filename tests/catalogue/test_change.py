"""Items that join and leave a model: where they go, what they get, and what stays as it was."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.artefact import Artefact
from beamtree.catalogue.change import change_catalogue
from beamtree.data.interactions import InteractionLog
from beamtree.data.requests import Requests
from beamtree.errors import DataError, IdTypeError, InputError, UnknownIdsError
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import RecommendOptions, RecommendRequest
from beamtree.retrieval.similar import SimilarItems
from beamtree.tree.build import plant
from beamtree.tree.item_tree import ItemTree
from tests.catalogue.models import PARTS, both_searches, random_requests, tiny_model
from tests.small import random_tree

TABLES = ("tower/node_table", "attention/node_table")


def rows(*ids: int, **columns: Any) -> pl.DataFrame:
    return pl.DataFrame({"item_id": list(ids), **columns})


def leaf_vectors(artefact: Artefact, table: str) -> Any:
    tree = artefact.tree
    return artefact.weights[table][tree.level_offsets[tree.height] + tree.leaf_of_item]


def log_of(*histories: list[int]) -> InteractionLog:
    return InteractionLog(
        pl.DataFrame(
            [(user, item, time) for user, items in enumerate(histories) for time, item in enumerate(items)],
            schema=["user_id", "item_id", "timestamp"],
            orient="row",
        )
    )


def planted_afresh(artefact: Artefact) -> Artefact:
    """The same items with the same vectors in a tree of one leaf each, in the order of the dense ids."""
    old, tree = artefact.tree, plant(np.arange(artefact.tree.num_items), branching=artefact.tree.branching)
    weights = dict(artefact.weights)
    for name in TABLES:
        table = np.zeros((tree.num_nodes, weights[name].shape[1]), dtype=np.float32)
        table[tree.level_offsets[tree.height] + tree.leaf_of_item] = leaf_vectors(artefact, name)
        weights[name] = table
    weights["memory/gates"] = np.full(tree.height + 1, weights["memory/gates"][-1])
    return replace(artefact, tree=tree.without(old.removed), weights=weights)


def scores_of_all(engine: Engine, requests: Requests) -> list[dict[int, float]]:
    """For each request the score of every item that a scan returns."""
    found = engine.scan(requests, k=engine.tree.num_items)
    return [
        {item: score for item, score in zip(items, scores, strict=True) if item >= 0}
        for items, scores in zip(found.items.tolist(), found.scores.tolist(), strict=True)
    ]


changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 7)), st.tuples(st.just("remove"), st.floats(0.0, 0.95)),
    ),
    min_size=1,
    max_size=6,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    branching=st.integers(2, 4),
    num_items=st.integers(2, 12),
    vacant=st.integers(0, 3),
    steps=changes,
    seed=st.integers(0, 10**6),
    k=st.integers(1, 8),
    beam_width=st.integers(1, 40),
)
def test_after_any_changes_the_search_returns_present_items_and_scores_as_a_fresh_tree_does(
    branching: int, num_items: int, vacant: int, steps: list[tuple[str, Any]], seed: int, k: int, beam_width: int
) -> None:
    generator = np.random.default_rng(seed)
    artefact = tiny_model(
        random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant),
        seed=seed,
        model={"history_table": "separate"},  # a history is read on the leaves alone: fresh inner nodes are others
    )
    present, gone = set(range(100, 100 + num_items)), set[int]()
    for kind, size in steps:
        if kind == "add":
            back = sorted(gone)[: size // 2]
            new = back + [100 + len(present | gone) + number for number in range(size - len(back))]
            artefact = change_catalogue(artefact, add=rows(*new, category=["War"] * len(new))).artefact
            present, gone = present | set(new), gone - set(new)
        else:
            leaving = set(generator.choice(sorted(present), int(size * len(present)), replace=False).tolist())
            artefact = change_catalogue(artefact, remove=sorted(leaving)).artefact
            present, gone = present - leaving, gone | leaving
    requests = replace(random_requests(artefact.tree.num_items, seed=seed), excluded=None)
    ids = artefact.item_table["item_id"].to_numpy()
    found = both_searches(artefact, requests, k=k, beam_width=beam_width)
    for result in found:
        for line in result.items:
            known = ids[line[line >= 0]].tolist()
            assert len(known) == len(set(known)) == min(k, len(present))
            assert set(known) <= present
    afresh = Recommender(planted_afresh(artefact)).engine
    np.testing.assert_allclose(found[1].scores, afresh.scan(requests, k=k).scores, rtol=1e-5, atol=1e-5)
    for ours, fresh in zip(
        scores_of_all(Recommender(artefact).engine, requests), scores_of_all(afresh, requests), strict=True
    ):
        assert ours.keys() == fresh.keys() == {item - 100 for item in present}
        assert [ours[item] for item in ours] == pytest.approx([fresh[item] for item in ours], rel=1e-5, abs=1e-5)


def test_the_vectors_of_other_items_are_not_touched() -> None:
    before = tiny_model(random_tree(30, branching=2, seed=1), model={"history_table": "separate"})
    after = change_catalogue(before, add=rows(*range(500, 540)), remove=[103]).artefact
    assert after.tree.height > before.tree.height
    for name in TABLES:
        np.testing.assert_array_equal(leaf_vectors(after, name)[:30], leaf_vectors(before, name))
    np.testing.assert_array_equal(after.weights["attention/item_table"][:30], before.weights["attention/item_table"])
    assert after.item_table.head(30).equals(before.item_table)
    np.testing.assert_array_equal(after.popularity[:30], before.popularity)
    for name in ("transitions.items", "company.strengths", "weights.fade"):
        np.testing.assert_array_equal(after.weights[f"memory/{name}"], before.weights[f"memory/{name}"])
    assert after.fitted_items.equals(before.item_table)


def test_what_is_not_near_a_new_item_keeps_its_score() -> None:
    """New items change no inner node that somebody else's path leads through."""
    before = tiny_model(random_tree(32, branching=2, seed=1))
    after = change_catalogue(before, add=rows(*range(500, 510))).artefact
    kept = before.tree.num_nodes
    for name in TABLES:
        np.testing.assert_array_equal(after.weights[name][:kept], before.weights[name])


def vectors_by_hand() -> Artefact:
    """Four items on four leaves, with vectors along the axes; 100 and 101 are comedies, 101 thrice as popular."""
    tree = ItemTree(2, np.arange(4, dtype=np.int32))
    model = tiny_model(tree)
    table = np.zeros((7, 4), dtype=np.float32)
    table[3:] = np.eye(4)
    table[1], table[2] = table[3:5].mean(axis=0), table[5:7].mean(axis=0)
    return replace(
        model,
        weights={**model.weights, "tower/node_table": table},
        popularity=np.array([1, 3, 2, 2]),
        item_table=model.item_table.with_columns(category=pl.Series(["Comedy", "Comedy", "War", None])),
    )


@pytest.mark.parametrize(
    ("row", "log", "vector", "count"),
    [
        ({"category": ["Comedy"]}, None, [0.25, 0.75, 0, 0], 0),
        ({"category": ["Unheard of"]}, None, [0.125, 0.375, 0.25, 0.25], 0),
        ({}, None, [0.125, 0.375, 0.25, 0.25], 0),
        ({"category": ["Comedy"]}, [[102, 7, 103], [7, 103], [100, 101]], [0, 0, 1 / 3, 2 / 3], 2),
        ({"category": ["Comedy"]}, [[100, 102], [7], [8, 103]], [0.25, 0.75, 0, 0], 1),
    ],
)
def test_the_vector_of_a_new_item_is_the_mean_of_its_neighbours(
    row: dict[str, list[str]], log: list[list[int]] | None, vector: list[float], count: int
) -> None:
    before = vectors_by_hand()
    after = change_catalogue(before, add=rows(7, **row), interactions=None if log is None else log_of(*log)).artefact
    np.testing.assert_allclose(leaf_vectors(after, "tower/node_table")[4], vector, rtol=1e-6)
    nearest = int(np.argmax(vector))
    level = before.tree.height
    assert after.tree.item_ancestors([4], level) == after.tree.item_ancestors([nearest], level), "beside its neighbour"
    assert after.popularity[4] == count
    assert after.weights["memory/popularity"][4] == pytest.approx(np.log1p(count))
    assert after.weights["memory/returns"][4] == 1.0


def test_a_content_model_gives_the_vectors() -> None:
    before, asked = vectors_by_hand(), list[pl.DataFrame]()

    def content(table: pl.DataFrame) -> Any:
        asked.append(table)
        return np.array([[0, 0, 0, 2], [5, 0, 0, 0]], dtype=np.float32)

    after = change_catalogue(before, add=rows(7, 8, price=[1, 2]), content=content).artefact
    np.testing.assert_array_equal(leaf_vectors(after, "tower/node_table")[4:], content(asked[0]))
    assert asked[0].schema == before.item_table.schema
    at = after.tree.item_ancestors([0, 3, 4, 5], before.tree.height).tolist()
    assert (at[2], at[3]) == (at[1], at[0])
    with pytest.raises(InputError, match=r"finite vectors \(2, 4\) .*, got \(1, 4\)"):
        change_catalogue(before, add=rows(7, 8), content=lambda _: np.zeros((1, 4), dtype=np.float32))


def test_items_below_an_empty_node_are_found_by_a_narrow_beam() -> None:
    """Half of the tree is vacant: whoever moves in there lends its vector to the nodes above."""
    tree = ItemTree(2, np.array([0, 1, 2, 3, -1, -1, -1, -1], dtype=np.int32))
    before = tiny_model(tree, parts=("tower",))
    before = replace(before, weights={**before.weights, "tower/weight": np.array(1.0, dtype=np.float32)})
    after = change_catalogue(before, add=rows(7)).artefact
    row = int(after.tree.item_ancestors([4], 1)[0])
    assert row == 1
    np.testing.assert_array_equal(after.weights["tower/node_table"][1 + row], leaf_vectors(after, TABLES[0])[4])


@pytest.mark.parametrize("parts", [("memory",), ("tower", "memory"), ("attention",), PARTS])
def test_removed_items_are_nowhere(parts: tuple[str, ...]) -> None:
    before = tiny_model(random_tree(40, branching=3, seed=2), parts=parts)
    popular = (100 + np.argsort(-before.popularity, kind="stable")[:25]).tolist()
    after = change_catalogue(before, remove=popular).artefact
    recommender = Recommender(after)
    for history in ([], popular[:3], [popular[0], *sorted(set(range(100, 140)) - set(popular))[:2]]):
        for options in (RecommendOptions(k=30, exclude_seen=False), RecommendOptions(k=5, allow=[*popular, 139])):
            [found] = recommender.recommend([RecommendRequest(history=history, options=options)])
            assert not set(found.items) & set(popular)
            if options.allow is None:
                assert len(found.items) == 15
    similar = SimilarItems(after)
    for kind in similar.kinds:
        for item in (popular[0] - 100, 0):
            assert not set((similar.near(item, count=39, by=kind)[0] + 100).tolist()) & set(popular)
    assert not set((similar.in_tree(popular[0] - 100, count=39)[0] + 100).tolist()) & set(popular)
    with pytest.raises(UnknownIdsError, match="was removed from the catalogue"):
        recommender.explain([100], popular[:1])


def test_removal_and_reinstatement_give_the_model_back() -> None:
    before = tiny_model(random_tree(12, branching=2, seed=5))
    removed = change_catalogue(before, remove=[104, 107, 104])
    assert (removed.removed, removed.artefact.tree.removed.tolist()) == (2, [4, 7])
    assert change_catalogue(removed.artefact, remove=[104]).lines() == ["Nothing to change."]
    back = change_catalogue(removed.artefact, add=rows(107, 900, 104, title=["New title", "x", "y"]))
    assert (back.added, back.reinstated, back.removed, back.grew) == (1, 2, 0, True)
    assert back.artefact.tree.removed.size == 0
    assert back.artefact.item_table.row(7) == (107, None, "New title", None)
    assert back.artefact.item_table["item_id"].to_list() == [*range(100, 112), 900]
    assert back.lines() == ["Added 1 item.", "Reinstated 2 items.", "The tree grew to 16 leaves on 4 levels."]


def test_what_cannot_be_done_is_refused() -> None:
    model = tiny_model(random_tree(6, branching=2, seed=5))
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        (
            {"add": rows(7, 102)},
            DataError,
            r"1 of 2 items exist already, the first is 102\. Leave them out; to replace",
        ),
        ({"add": rows(7, 7)}, DataError, "item_id 7 occurs 2 times"),
        (
            {"add": rows(7, weight=[1])},
            DataError,
            r"not fitted with: weight\. It knows item_id, category, title, price",
        ),
        ({"add": rows(7, price=["cheap"])}, DataError, r"column price as Float64, .* got String such as 'cheap'"),
        ({"add": rows(7, price=[True])}, DataError, "column price as Float64"),
        ({"add": pl.DataFrame({"item_id": ["x"]})}, DataError, r"column item_id as Int64.* got String such as 'x'"),
        ({"remove": [102, 1000]}, UnknownIdsError, "1 of the 2 items to remove, the first is 1000"),
        ({"remove": ["102"]}, IdTypeError, "are integers, got '102'"),
        ({"remove": range(100, 106)}, InputError, "All 6 items would be removed"),
        ({"add": rows(102), "remove": [102]}, InputError, "102 is to be added and to be removed"),
    ]
    for change, error, message in refused:
        with pytest.raises(error, match=message):
            change_catalogue(model, **change)
    strange = replace(model, weights={**model.weights, "mine/table": np.zeros(3)})
    with pytest.raises(InputError, match=r"parts that beamtree does not know \(mine\)"):
        change_catalogue(strange, add=rows(7))
    assert change_catalogue(strange, remove=[100]).removed == 1


def test_integers_may_stand_in_a_column_of_decimals_but_not_the_reverse() -> None:
    model = tiny_model(random_tree(6, branching=2, seed=5))
    model = replace(model, item_table=model.item_table.with_columns(year=pl.Series([1999] * 6)))
    after = change_catalogue(model, add=rows(7, 8, price=[3, None], year=[2001.0, None])).artefact
    assert after.item_table.tail(2).select("price", "year").rows() == [(3.0, 2001), (None, None)]
    with pytest.raises(DataError, match=r"column year as Int64, .* got Float64 such as 1999\.5"):
        change_catalogue(model, add=rows(7, year=[1999.5]))


def test_vectors_of_another_size_are_refused() -> None:
    model = tiny_model(random_tree(6, branching=2, seed=5))
    model = replace(model, item_table=model.item_table.with_columns(text=pl.Series([[0.5, 1.0]] * 5 + [None])))
    after = change_catalogue(model, add=rows(7, 8, text=[[1.0, 2.0], None])).artefact
    assert after.item_table["text"].to_list()[-2:] == [[1.0, 2.0], None]
    with pytest.raises(DataError, match=r"Expected vectors of 2 numbers in the column text, .* got 3\."):
        change_catalogue(model, add=rows(7, text=[[1.0, 2.0, 3.0]]))
