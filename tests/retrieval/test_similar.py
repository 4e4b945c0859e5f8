"""Neighbours of items, on trees small enough to draw and counts small enough to count."""

import numpy as np
import pytest

from beamtree.artefact import Artefact
from beamtree.errors import InputError
from beamtree.model.memory import Links
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


def test_a_catalogue_of_one_item_has_no_neighbours() -> None:
    similar = SimilarItems(random_artefact(1))
    assert similar.in_tree(0, count=5)[1] == []
    assert len(similar.by_embedding(0, count=5)[0]) == 0


def test_what_followed_most_often_is_nearest() -> None:
    """Item 0 is followed by 2 three times, by itself twice, by 1 and 3 once; nothing follows 1, 2 or 3."""
    artefact = random_artefact(4, parts=("memory",))
    links = Links(
        np.array([0, 4, 4, 4, 4]), np.array([0, 1, 2, 3], dtype=np.int32), np.log1p([2, 1, 3, 1]).astype(np.float16)
    )
    counted = {"offsets": links.offsets, "items": links.items, "strengths": links.strengths}
    weights = {**artefact.weights} | {f"memory/transitions.{name}": array for name, array in counted.items()}
    similar = SimilarItems(Artefact(**(vars(artefact) | {"weights": weights})))
    assert similar.kinds == ("memory",)
    items, strengths = similar.near(0, count=5)
    assert items.tolist() == [2, 1, 3]
    assert np.expm1(strengths) == pytest.approx([3, 1, 1], rel=2e-3)
    assert similar.near(0, count=1)[0].tolist() == [2]
    assert len(similar.near(1, count=5)[0]) == 0


def test_a_model_is_asked_only_for_what_it_has() -> None:
    assert SimilarItems(random_artefact(4, parts=("attention", "memory"))).kinds == ("embedding", "memory")
    with pytest.raises(InputError, match=r"no part 'attention' or 'tower'.*Compare them by memory"):
        SimilarItems(random_artefact(4, parts=("memory",))).near(0, count=2, by="embedding")


def test_nothing_asked_for_and_nothing_to_compare_by() -> None:
    model = sparse_model()
    with pytest.raises(InputError, match="at least 1 item"):
        SimilarItems(model).near(3, count=-1)
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
