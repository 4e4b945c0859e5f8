"""A larger tree gives room to new items and changes no answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.catalogue.growth import grow, grow_model
from beamtree.model.torch_scorer import build_torch_scorer
from beamtree.retrieval.engine import Engine
from beamtree.tree.item_tree import ItemTree
from tests.catalogue.models import assert_same_answers, both_searches, random_requests, tiny_model
from tests.small import random_tree

shapes = given(
    branching=st.integers(2, 4), num_items=st.integers(1, 40), vacant=st.integers(0, 8), seed=st.integers(0, 10**6)
)


def test_a_leaf_level_that_is_not_full_is_filled() -> None:
    """Five leaves of branching 2: nodes 0 to 3 of level 2 have the leaves 0-1, 2, 3, 4."""
    growth = grow(ItemTree(2, np.array([4, 3, 2, 1, 0], dtype=np.int32)))
    assert growth.tree.item_at_leaf.tolist() == [4, 3, 2, -1, 1, -1, 0, -1]
    assert (growth.kept_rows, growth.adds_level) == (7, False)
    table = np.arange(12.0)[:, None]
    assert growth.rows(table)[:, 0].tolist() == [*range(7), 7, 8, 9, 0, 10, 0, 11, 0]


def test_a_full_leaf_level_gets_another_one_below() -> None:
    growth = grow(ItemTree(2, np.array([1, 0, 3, 2], dtype=np.int32), removed=np.array([3], dtype=np.int32)))
    assert growth.tree.placement.tolist() == [1, -1, 0, -1, 3, -1, 2, -1]
    assert growth.tree.removed.tolist() == [3]
    assert growth.adds_level
    table = np.arange(7.0)[:, None]
    assert growth.rows(table)[:, 0].tolist() == [*range(7), 3, 0, 4, 0, 5, 0, 6, 0]


@settings(max_examples=60, deadline=None)
@shapes
def test_no_item_changes_its_ancestors(branching: int, num_items: int, vacant: int, seed: int) -> None:
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    grown = grow(tree).tree
    assert grown.num_leaves == branching**grown.height > tree.num_leaves
    last_kept = tree.height if grown.height > tree.height else tree.height - 1
    for level in range(last_kept + 1):
        np.testing.assert_array_equal(
            grown.item_ancestors(np.arange(num_items), level), tree.item_ancestors(np.arange(num_items), level)
        )


@settings(max_examples=40, deadline=None)
@shapes
def test_growth_changes_no_answer(branching: int, num_items: int, vacant: int, seed: int) -> None:
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    model = tiny_model(tree, seed=seed)
    requests = random_requests(num_items, seed=seed)
    expected = both_searches(model, requests, k=3, beam_width=4)
    for _ in range(3):
        model = grow_model(model)
        assert_same_answers(both_searches(model, requests, k=3, beam_width=4), expected)


@pytest.mark.parametrize("levels", [1, 2, None])
@pytest.mark.parametrize("history_table", ["shared", "separate"])
def test_attention_scores_the_levels_that_it_scored(levels: int | None, history_table: str) -> None:
    tree = random_tree(30, branching=2, seed=3)
    model = tiny_model(tree, model={"attention_levels": levels, "history_table": history_table})
    requests = random_requests(30, seed=4)
    expected = both_searches(model, requests, k=5, beam_width=6)
    for _ in range(2):
        model = grow_model(model)
        assert_same_answers(both_searches(model, requests, k=5, beam_width=6), expected)
    assert model.config.model.attention_levels == (None if levels is None else levels + 1)


def test_growth_changes_no_answer_in_torch_either() -> None:
    model = tiny_model(random_tree(21, branching=3, seed=1), seed=2)
    requests = random_requests(21, seed=2)
    answers = []
    for artefact in (model, grow_model(grow_model(model))):
        engine = Engine(build_torch_scorer(artefact.weights, artefact.tree, config=artefact.config), artefact.tree)
        answers.append([engine.search(requests, k=4, beam_width=5), engine.scan(requests, k=4)])
    assert_same_answers(answers[1], answers[0])
