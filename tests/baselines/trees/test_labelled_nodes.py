"""Which nodes a node-wise loss tells apart, on trees small enough to draw."""

import numpy as np

from beamtree.baselines.trees.node_loss import SiblingNodes, UniformNodes, distinct, draw_others
from beamtree.tree.build import plant
from tests.small import random_tree

GENERATOR = np.random.default_rng(0)


def chosen(nodes: SiblingNodes | UniformNodes, targets: list[list[int]]) -> list[list[dict[int, float]]]:
    """For each level and instance: node, numbered over the whole tree, to label."""
    found = nodes(np.array(targets, dtype=np.int32), generator=GENERATOR)
    return [
        [
            {int(row): float(label) for row, label in zip(rows, labels, strict=True) if row >= 0}
            for rows, labels in zip(found.rows[level], found.labels[level], strict=True)
        ]
        for level in range(len(found.rows))
    ]


def test_siblings_of_the_path() -> None:
    """Seven nodes: 0; 1, 2; 3, 4, 5, 6. Item i on leaf i, which is node 3 + i."""
    tree = plant(np.arange(4), branching=2)
    levels = chosen(SiblingNodes(tree), [[2, -1], [0, 3], [1, 1]])
    assert levels[0] == [{1: 0.0, 2: 1.0}, {1: 1.0, 2: 1.0}, {1: 1.0, 2: 0.0}]
    assert levels[1] == [{5: 1.0, 6: 0.0}, {3: 1.0, 4: 0.0, 5: 0.0, 6: 1.0}, {3: 0.0, 4: 1.0}]


def test_small_levels_are_taken_whole() -> None:
    tree = plant(np.arange(4), branching=2)
    levels = chosen(UniformNodes(tree, negatives=3), [[2], [0]])
    assert levels[0] == [{1: 0.0, 2: 1.0}, {1: 1.0, 2: 0.0}]
    assert levels[1] == [{3: 0.0, 4: 0.0, 5: 1.0, 6: 0.0}, {3: 1.0, 4: 0.0, 5: 0.0, 6: 0.0}]


def test_negatives_are_different_nodes_of_the_level_and_never_positives() -> None:
    tree = random_tree(21, branching=2, seed=3, num_leaves=25)
    targets = np.random.default_rng(1).integers(-1, 21, size=(40, 3)).astype(np.int32)
    targets[:, 0] = np.abs(targets[:, 0])
    found = UniformNodes(tree, negatives=4)(targets, generator=GENERATOR)
    for level in range(1, tree.height + 1):
        first, end = tree.level_offsets[level], tree.level_offsets[level + 1]
        for rows, labels, items in zip(found.rows[level - 1], found.labels[level - 1], targets, strict=True):
            nodes = rows[rows >= 0]
            assert len(set(nodes)) == len(nodes), "each once"
            assert ((nodes >= first) & (nodes < end)).all()
            assert tree.occupied(level)[nodes - first].all(), "no vacant leaf"
            positives = set(tree.item_ancestors(items[items >= 0], level) + first)
            assert set(rows[(labels == 1) & (rows >= 0)]) == positives
            if tree.occupied(level).sum() > 7:
                assert (labels[rows >= 0] == 0).sum() == 4


def test_all_others_are_drawn_as_often() -> None:
    """Below 6 without 4 and 1: pairs from 0, 2, 3 and 5, each of the four in half of them."""
    excluded = np.tile([4, 1, -1], (4000, 1))
    drawn = draw_others(excluded, limit=6, count=2, generator=np.random.default_rng(2))
    assert (drawn[:, 0] != drawn[:, 1]).all()
    counts = np.bincount(drawn.ravel(), minlength=6)
    assert counts[[1, 4]].tolist() == [0, 0]
    np.testing.assert_allclose(counts[[0, 2, 3, 5]], 2000, atol=150)


def test_distinct_puts_what_is_missing_last() -> None:
    assert distinct(np.array([[3, 3, -1, 5], [0, 0, 0, 0]])).tolist() == [[5, 3, -1, -1], [0, -1, -1, -1]]
