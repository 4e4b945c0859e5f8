"""Neighbours of items, on trees small enough to draw and counts small enough to count."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.artefact import Artefact
from beamtree.errors import InputError
from beamtree.model.memory import Links
from beamtree.retrieval import similar as similar_module
from beamtree.retrieval.similar import SimilarItems
from beamtree.tree.item_tree import ItemTree
from tests.serving.models import random_artefact, random_weights


def sparse_model() -> Artefact:
    """Six items on eight leaves; the leaves 1 and 6 are vacant."""
    artefact = random_artefact(6)
    tree = ItemTree(2, np.array([2, -1, 0, 5, 1, 3, -1, 4], dtype=np.int32))
    weights = random_weights(artefact.config.model, tree, generator=np.random.default_rng(3))
    return Artefact(**(vars(artefact) | {"tree": tree, "weights": weights}))


def test_neighbours_in_a_tree_with_vacant_leaves() -> None:
    similar = SimilarItems(sparse_model())
    items, levels = similar.in_tree(2, count=5)
    assert (items.tolist(), levels) == ([0, 5, 1, 3, 4], [1, 1, 0, 0, 0])
    items, levels = similar.in_tree(3, count=2)
    assert (items.tolist(), levels) == ([1, 4], [2, 1])
    items, cosines = similar.by_embedding(3, count=100)
    assert sorted(items.tolist()) == [0, 1, 2, 4, 5]
    assert np.isfinite(cosines).all()


def with_vectors(model: Artefact, vectors: np.ndarray) -> SimilarItems:
    """Over a model whose tower has these vectors of its nodes: (nodes, size)."""
    return SimilarItems(Artefact(**(vars(model) | {"weights": {"tower/node_table": vectors.astype(np.float32)}})))


def random_tree(generator: np.random.Generator, *, branching: int, num_items: int, vacant: int) -> ItemTree:
    """A tree over so many items, with vacant leaves anywhere."""
    leaves = np.r_[generator.permutation(num_items), np.full(vacant, -1)]
    return ItemTree(branching, generator.permutation(leaves).astype(np.int32))


@settings(max_examples=60, deadline=None)
@given(
    branching=st.integers(2, 4),
    num_items=st.integers(1, 12),
    vacant=st.integers(0, 12),
    count=st.integers(1, 14),
    seed=st.integers(0, 10_000),
)
def test_neighbours_in_any_tree_are_those_of_a_sort_over_all_items(
    branching: int, num_items: int, vacant: int, count: int, seed: int
) -> None:
    """By the deepest common node, then by the distance of the leaves, then by the leaf."""
    generator = np.random.default_rng(seed)
    tree = random_tree(generator, branching=branching, num_items=num_items, vacant=vacant)
    model = Artefact(**(vars(random_artefact(num_items)) | {"tree": tree}))
    leaf = int(tree.leaf_of_item[0])
    ranked = []
    for other in range(1, num_items):
        other_leaf = int(tree.leaf_of_item[other])
        shared = [
            level for level in range(tree.height) if tree.ancestors(leaf, level) == tree.ancestors(other_leaf, level)
        ]
        ranked.append((-max(shared), abs(other_leaf - leaf), other_leaf, other))
    ranked.sort()
    items, levels = SimilarItems(model).in_tree(0, count=count)
    assert items.tolist() == [other for *_, other in ranked[:count]]
    assert levels == [-level for level, *_ in ranked[:count]]


@pytest.mark.parametrize("rows_at_a_time", [3, 1000])
@pytest.mark.parametrize("count", [1, 4, 9, 50])
def test_the_highest_cosines_over_all_items(rows_at_a_time: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar_module, "ROWS_AT_A_TIME", rows_at_a_time)
    generator = np.random.default_rng(0)
    tree = random_tree(generator, branching=2, num_items=10, vacant=3)
    vectors = generator.normal(size=(tree.num_nodes, 3)) * generator.choice([0.01, 100], size=(tree.num_nodes, 1))
    similar = with_vectors(Artefact(**(vars(random_artefact(10)) | {"tree": tree})), vectors)
    own = vectors[tree.level_offsets[tree.height] + tree.leaf_of_item]
    unit = own / np.linalg.norm(own, axis=1, keepdims=True)
    for item in range(10):
        expected = [other for other in np.argsort(-unit @ unit[item]) if other != item][:count]
        items, cosines = similar.by_embedding(item, count=count)
        assert items.tolist() == expected
        assert cosines == pytest.approx(unit[expected] @ unit[item], abs=1e-6)


def test_equal_cosines_rank_by_leaf_and_a_vector_of_zeros_is_near_nothing() -> None:
    """On the leaves from left to right: items 2, 0, 5, 1, 3, 4. Item 0 has no direction; 5, 1 and 3 have that of 2."""
    model = sparse_model()
    vectors = np.zeros((model.tree.num_nodes, 2))
    leaves = model.tree.level_offsets[model.tree.height] + model.tree.leaf_of_item
    vectors[leaves] = np.array([[0, 0], [2, 0], [1, 0], [3, 0], [-1, 0], [4, 0]])
    similar = with_vectors(model, vectors)
    items, cosines = similar.by_embedding(2, count=5)
    assert (items.tolist(), cosines.tolist()) == ([5, 1, 3, 0, 4], [1, 1, 1, 0, -1])
    items, cosines = similar.by_embedding(0, count=5)
    assert (items.tolist(), cosines.tolist()) == ([2, 5, 1, 3, 4], [0] * 5)


def test_a_catalogue_of_one_item_has_no_neighbours() -> None:
    similar = SimilarItems(random_artefact(1))
    items, levels = similar.in_tree(0, count=5)
    assert (items.tolist(), levels) == ([], [])
    assert len(similar.by_embedding(0, count=5)[0]) == 0


def test_what_followed_most_often_is_nearest() -> None:
    """Item 0 is followed by 2 three times, by itself twice, by 1 and 3 once; item 2 by 1 once; 1 and 3 by nothing."""
    artefact = random_artefact(4, parts=("memory",))
    links = Links(
        np.array([0, 4, 4, 5, 5]),
        np.array([0, 1, 2, 3, 1], dtype=np.int32),
        np.log1p([2, 1, 3, 1, 1]).astype(np.float16),
    )
    counted = {"offsets": links.offsets, "items": links.items, "strengths": links.strengths}
    weights = {**artefact.weights} | {f"memory/transitions.{name}": array for name, array in counted.items()}
    similar = SimilarItems(Artefact(**(vars(artefact) | {"weights": weights})))
    assert similar.kinds == ("memory",)
    items, strengths = similar.near(0, count=5)
    assert items.tolist() == [2, 1, 3]
    assert np.expm1(strengths) == pytest.approx([3, 1, 1], rel=2e-3)
    assert similar.near(0, count=1)[0].tolist() == [2]
    assert similar.near(2, count=5)[0].tolist() == [1]
    assert [len(similar.near(item, count=5)[0]) for item in (1, 3)] == [0, 0]


def test_a_model_is_asked_only_for_what_it_has() -> None:
    both = SimilarItems(random_artefact(4, parts=("attention", "memory")))
    assert both.kinds == ("embedding", "memory")
    by_embedding, by_memory = both.by_embedding(0, count=3), both.by_memory(0, count=3)
    for found, expected in (
        (both.near(0, count=3), by_embedding),
        (both.near(0, count=3, by="embedding"), by_embedding),
        (both.near(0, count=3, by="memory"), by_memory),
    ):
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
    with pytest.raises(InputError, match=r"no part 'attention' or 'tower'.*Compare them by memory"):
        SimilarItems(random_artefact(4, parts=("memory",))).near(0, count=2, by="embedding")


def test_nothing_asked_for_and_nothing_to_compare_by() -> None:
    model = sparse_model()
    for count in (0, -1):
        with pytest.raises(InputError, match="at least 1 item"):
            SimilarItems(model).near(3, count=count)
    with pytest.raises(InputError, match="no attention, tower or memory"):
        SimilarItems(Artefact(**(vars(model) | {"weights": {"taste/bias": np.zeros(3)}}))).near(3, count=1)


def test_the_vectors_of_a_tower_compare_items_where_there_is_no_attention() -> None:
    """Two leaves with the same direction, the others across."""
    model = sparse_model()
    tree = model.tree
    vectors = np.zeros((tree.num_nodes, 3), dtype=np.float32)
    leaves = tree.level_offsets[tree.height] + tree.leaf_of_item
    vectors[leaves] = np.array([[1, 0, 0], [0, 1, 0], [2, 0.1, 0], [0, 0, 1], [0, 1, 1], [0, -1, 0]])
    similar = SimilarItems(Artefact(**(vars(model) | {"weights": {"tower/node_table": vectors}})))
    assert similar.kinds == ("embedding",)
    items, cosines = similar.near(0, count=1)
    assert items.tolist() == [2]
    assert cosines[0] == pytest.approx(2 / np.hypot(2, 0.1))
