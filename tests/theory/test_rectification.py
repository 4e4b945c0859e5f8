"""Sections 4.1.2 and 4.2: what labels a beam search needs."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.retrieval.beam import beam_search
from beamtree.training.rectify import first_winning_level, labels_from, scores_by_leaf
from beamtree.tree.build import plant
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray
from research.labels import normalised_labels
from tests.small import random_tree

Float64Array = npt.NDArray[np.float64]

ETA = np.array([0.21, 0.0, 0.12, 0.18, 0.19, 0.0, 0.16, 0.14])


def rectified(tree: ItemTree, leaf_scores: npt.NDArray[np.float32], leaves: npt.NDArray[np.int64]) -> AnyArray:
    return labels_from(first_winning_level(leaf_scores, leaves, tree=tree), height=tree.height)


def expected_labels(tree: ItemTree, probabilities: Float64Array, labels: AnyArray) -> list[Float64Array]:
    """E[z | u] of every node, level by level, for labels (items, height) of each item as the target."""
    expected = []
    for level in range(1, tree.height + 1):
        ancestors = tree.item_ancestors(np.arange(tree.num_items), level)
        of_level = np.zeros(tree.level_sizes[level])
        np.add.at(of_level, ancestors, probabilities * labels[:, level - 1])
        expected.append(of_level)
    return expected


def found_by(tree: ItemTree, levels: list[Float64Array], *, beam_width: int) -> list[int]:
    """Items that a beam finds by these scores, as many as it is wide."""
    ranking = beam_search(
        tree,
        lambda level, nodes: levels[level - 1][nodes].astype(np.float32),
        eligibility=Eligibility(tree),
        request=0,
        beam_width=beam_width,
        k=beam_width,
    )
    items: list[int] = tree.item_at_leaf[ranking.leaves].tolist()
    return items


def test_one_hot_labels_lead_a_beam_astray_and_rectified_ones_do_not() -> None:
    """The proof of Proposition 1, items counted from 1: a beam of 3 should find 1, 4 and 5."""
    tree = plant(np.arange(8), branching=2)
    one_hot = expected_labels(tree, ETA, np.ones((8, 3)))
    assert [level.tolist() for level in one_hot[:2]] == [
        pytest.approx([0.51, 0.49]),
        pytest.approx([0.21, 0.3, 0.19, 0.3]),
    ]
    assert {item + 1 for item in found_by(tree, one_hot, beam_width=3)} == {1, 4, 7}

    leaf_scores = scores_by_leaf(np.tile(ETA.astype(np.float32), (8, 1)), tree)
    better = expected_labels(tree, ETA, rectified(tree, leaf_scores, np.arange(8)))
    assert better[1].tolist() == pytest.approx([0.21, 0.18, 0.19, 0.16])
    assert {item + 1 for item in found_by(tree, better, beam_width=3)} == {1, 4, 5}


def test_the_illustration_of_the_labels() -> None:
    """Target f on leaf 20, below 9, 4 and 1 (nodes counted from the root, row by row): labels 1, 1, 1, 0 upwards.

    Item c, with .13, is likelier than f, with .11, and both are below node 1; f is the likeliest of e to h.
    """
    tree = plant(np.arange(16), branching=2)
    names = "abcdefghijklmnop"
    probabilities = np.full(16, 0.76 / 14, dtype=np.float32)
    probabilities[names.index("c")], probabilities[names.index("f")] = 0.13, 0.11
    leaf = np.array([names.index("f")])
    path = [int(tree.level_offsets[level] + tree.ancestors(leaf, level)[0]) for level in (4, 3, 2, 1)]
    assert path == [20, 9, 4, 1]
    assert rectified(tree, probabilities[None], leaf)[0, ::-1].tolist() == [1.0, 1.0, 1.0, 0.0]


@settings(max_examples=40, deadline=None)
@given(num_items=st.integers(2, 50), vacant=st.integers(0, 9), branching=st.integers(2, 5), seed=st.integers(0, 10_000))
def test_scores_ranked_like_the_expected_rectified_label_give_the_true_top_for_every_beam(
    num_items: int, vacant: int, branching: int, seed: int
) -> None:
    """Proposition 3, for the labels as they are and normalised; any rising function of them ranks alike."""
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    generator = np.random.default_rng(seed)
    probabilities = generator.permutation(np.arange(1.0, num_items + 1.0))
    probabilities /= probabilities.sum()
    leaf_scores = scores_by_leaf(np.tile(np.log(probabilities).astype(np.float32), (num_items, 1)), tree)
    leaves = tree.leaf_of_item.astype(np.int64)
    best = np.argsort(-probabilities)
    for labels in (rectified(tree, leaf_scores, leaves), normalised_labels(leaf_scores, leaves, tree=tree)):
        levels = expected_labels(tree, probabilities, labels)
        ranked_alike = [3.0 * np.sqrt(level) - 1.0 for level in levels]
        for width in range(1, num_items + 1):
            assert found_by(tree, ranked_alike, beam_width=width) == best[:width].tolist()
