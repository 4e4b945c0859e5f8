"""Several targets of one history: the same loss and gradients as each of them alone with the same negatives."""

from __future__ import annotations

import numpy as np
import pytest

from beamtree.native.attention import AttentionArrays
from beamtree.native.training import Gradients, Negatives, learn_batch
from beamtree.tree.item_tree import ItemTree
from tests.native.plain_network import Shape
from tests.native.small_models import random_attention, random_histories, random_tree

INSTANCES = 6


def dense(gradients: Gradients, attention: AttentionArrays, tree: ItemTree) -> dict[str, np.ndarray]:
    """All gradients with rows for the whole table."""
    nodes = np.zeros((tree.num_nodes, attention.network.size))
    nodes[gradients.nodes.rows] = gradients.nodes.values
    return {**gradients.weights, "node_table": nodes, "loss": np.array(gradients.loss)}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("negatives", "first_level"),
    [
        (Negatives(np.full(16, 6)), 1),
        (Negatives(np.full(16, 6)), 4),
        (Negatives(np.full(16, 6), "top_down"), 1),
        (Negatives(np.full(16, 6), "top_down"), 4),
        (Negatives(np.full(16, 6), "top_down", start="root"), 1),
        (Negatives(np.full(16, 6), "top_down", correct_positive=False), 1),
        (Negatives(np.full(16, 4096)), 1),
    ],
    ids=["uniform", "uniform below", "top-down", "top-down below", "from the root", "uncorrected", "whole levels"],
)
def test_targets_together_give_the_sum_of_each_alone(seed: int, negatives: Negatives, first_level: int) -> None:
    generator = np.random.default_rng(seed)
    tree = random_tree(generator, items=150, vacant=20 * (seed % 2), branching=2 + seed % 3)
    attention, _ = random_attention(generator, tree, Shape())
    histories = random_histories(generator, tree, Shape(), count=INSTANCES)
    targets = generator.integers(0, tree.num_items, (INSTANCES, 4)).astype(np.int32)
    targets[1, 2:] = -1
    targets[2, 1] = targets[2, 0]
    weights = generator.random((*targets.shape, tree.height)).astype(np.float32)
    weights[3, 1, :2] = 0.0
    weights[targets < 0] = 0.0
    drawn = Negatives(negatives.counts[: tree.height], negatives.sampler, negatives.start, negatives.correct_positive)

    def learn(chosen: np.ndarray, share: np.ndarray) -> dict[str, np.ndarray]:
        step = learn_batch(
            attention,
            tree,
            histories=histories,
            targets=chosen,
            weights=share,
            negatives=drawn,
            seed=seed,
            first_level=first_level,
        )
        return dense(step, attention, tree)

    together = learn(targets, weights)
    alone = [
        learn(np.ascontiguousarray(targets[:, [column]]), np.ascontiguousarray(weights[:, [column]]))
        for column in range(targets.shape[1])
    ]
    for name, found in together.items():
        expected = sum(np.asarray(part[name], dtype=np.float64) for part in alone)
        np.testing.assert_allclose(found, expected, atol=2e-5 * (1 + np.abs(expected).max()), err_msg=name)


def test_without_weights_the_targets_of_a_history_share_one() -> None:
    generator = np.random.default_rng(5)
    tree = random_tree(generator, items=90)
    attention, _ = random_attention(generator, tree, Shape())
    histories = random_histories(generator, tree, Shape(), count=2)
    targets = np.array([[3, 8, 11], [5, -1, -1]], dtype=np.int32)
    shares = np.array([[1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]], dtype=np.float32)
    weights = np.ascontiguousarray(np.broadcast_to(shares[:, :, None], (2, 3, tree.height)))
    negatives = Negatives(np.full(tree.height, 10), "top_down")
    found = learn_batch(attention, tree, histories=histories, targets=targets, negatives=negatives, seed=0)
    expected = learn_batch(
        attention, tree, histories=histories, targets=targets, weights=weights, negatives=negatives, seed=0
    )
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    np.testing.assert_allclose(found.nodes.values, expected.nodes.values, rtol=1e-4, atol=1e-7)
