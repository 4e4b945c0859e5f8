"""Products along paths: PLT's search, and the likelihood by which JTM places items."""

import math

import numpy as np
import pytest

from beamtree.baselines.trees.jtm import nodes_below, path_scores
from beamtree.baselines.trees.plt import PathScorer, log_sigmoid
from beamtree.data.requests import Histories, Requests
from beamtree.model.torch_scorer import TorchScorer
from beamtree.retrieval.engine import Engine
from beamtree.training.instances import Batch
from beamtree.training.relearn import Stage
from beamtree.tree.build import plant
from beamtree.types import Float32Array, Int64Array
from tests.small import model_settings, random_tree, score_of, stirred_model


class ByTable:
    """Scores by level and node, and how often each node was asked for."""

    def __init__(self, *levels: list[float]) -> None:
        self.levels = levels
        self.asked: list[tuple[int, int]] = []

    def prepare(self, _requests: Requests) -> "ByTable":
        return self

    def scores(self, _request: int, level: int, nodes: Int64Array) -> Float32Array:
        self.asked += [(level, int(node)) for node in nodes]
        return np.array([self.levels[level][node] for node in nodes], dtype=np.float32)


def logit(probability: float) -> float:
    return math.log(probability / (1.0 - probability))


def test_a_leaf_scores_the_product_of_its_path() -> None:
    """Leaves .9 x .2 and .9 x .3 on the left, .4 x .9 and .4 x .1 on the right: the best leaf alone would be wrong."""
    tree = plant(np.arange(4), branching=2)
    table = ByTable([0.0], [logit(0.9), logit(0.4)], [logit(0.2), logit(0.3), logit(0.9), logit(0.1)])
    found = Engine(PathScorer(table, tree), tree).search(Requests(Histories.of_lists([[0]])), k=4, beam_width=4)
    assert found.items[0].tolist() == [2, 1, 0, 3]
    np.testing.assert_allclose(np.exp(found.scores[0]), [0.36, 0.27, 0.18, 0.04], rtol=1e-5)


def test_a_beam_asks_for_each_node_once() -> None:
    tree = plant(np.arange(8), branching=2)
    table = ByTable([0.0], [0.1] * 2, [0.2, 0.1, 0.3, 0.4], [0.1] * 8)
    Engine(PathScorer(table, tree), tree).search(Requests(Histories.of_lists([[0]])), k=2, beam_width=2)
    assert len(table.asked) == len(set(table.asked)) == 2 + 4 + 4


def test_the_logarithm_of_a_sigmoid_does_not_overflow() -> None:
    np.testing.assert_allclose(
        log_sigmoid(np.array([0.0, -500.0, 500.0], dtype=np.float32)), [-math.log(2), -500.0, 0.0]
    )


def test_nodes_between_a_group_and_its_candidates() -> None:
    """Seven leaves: node 0 of level 1 has the leaves 0 to 3, node 1 has 4 to 6; from level 1 to the leaves."""
    tree = plant(np.arange(7), branching=2)
    stage = Stage(1, 3)
    nodes, place = nodes_below(tree, np.array([0, 1]), stage=stage, level=2, columns=4)
    assert nodes.tolist() == [[0, 1], [2, 3]]
    assert place.tolist() == [[0, 0, 1, 1], [0, 0, 1, -1]]
    leaves, place = nodes_below(tree, np.array([0, 1]), stage=stage, level=3, columns=4)
    assert leaves.tolist() == [[0, 1, 2, 3], [4, 5, 6, -1]]
    assert place.tolist() == [[0, 1, 2, 3], [0, 1, 2, -1]]


def test_a_placement_is_weighed_by_the_sum_over_histories_and_levels() -> None:
    tree = random_tree(7, branching=2, seed=1)
    score = score_of(stirred_model(model_settings(), tree, seed=2))
    histories = Histories.of_lists([[0, 3], [5], [1, 1, 6]])
    batch = Batch(histories, np.array([[4], [2], [4]], dtype=np.int32))
    stage, node_of_item = Stage(1, 3), tree.item_ancestors(np.arange(7), 1)
    sums = np.zeros((7, 4))
    path_scores(score)(sums, batch, node_of_item, stage)
    prepared = TorchScorer(score).prepare(Requests(histories))
    expected = np.zeros((7, 4))
    for instance, item in enumerate((4, 2, 4)):
        first, end = tree.leaf_ranges(node_of_item[item], 1)
        for leaf in range(int(first), int(end)):
            for level in (2, 3):
                node = tree.ancestors(np.array([leaf]), level)
                expected[item, leaf - first] += log_sigmoid(prepared.scores(instance, level, node))[0]
    np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-5)
    assert sums[4].min() < 0.0 == pytest.approx(abs(sums[0]).max())
