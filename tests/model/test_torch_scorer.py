"""Any score as a scorer: request by request, as the plain network says, whatever else is asked."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from beamtree.data.requests import Histories, Requests
from beamtree.model.attention import Attention
from beamtree.model.torch_scorer import TorchScorer
from beamtree.tree.item_tree import ItemTree
from tests.small import model_settings, plain_scores, random_histories, random_tree, score_of, stirred_model


@pytest.fixture
def drawn_tree() -> ItemTree:
    """Leaves 0 to 4 carry the items 3, 1, none, 0, 2. Level 2 has four nodes; rows 0 | 1 2 | 3 4 5 6 | 7 to 11."""
    return ItemTree(2, np.array([3, 1, -1, 0, 2], dtype=np.int32))


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        # The items 3, 1, 0, 2 stand on the leaves 0, 1, 3, 4; on level j that is floor(leaf * 2^j / 5).
        (1, [-1, 1, 1, 2, 2]),
        (2, [-1, 3, 3, 5, 6]),
        (3, [-1, 7, 8, 10, 11]),
    ],
)
def test_history_rows_are_those_of_the_ancestors(drawn_tree: ItemTree, level: int, expected: list[int]) -> None:
    history = np.array([-1, 3, 1, 0, 2], dtype=np.int32)
    shared = stirred_model(model_settings(), drawn_tree, seed=0)
    separate = stirred_model(model_settings(history_table="separate"), drawn_tree, seed=0)
    assert shared.history_rows(history, level).tolist() == expected
    assert separate.history_rows(history, level).tolist() == history.tolist()


@pytest.mark.parametrize("history_table", ["shared", "separate"])
@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_scorer_reads_the_right_rows(drawn_tree: ItemTree, history_table: Any, level: int) -> None:
    """Changing exactly the rows that a question reads changes its answer; changing all others does not."""
    model = stirred_model(model_settings(history_table=history_table), drawn_tree, seed=0)
    history = np.array([-1, -1, 3, 0, 3], dtype=np.int32)
    nodes = np.array([1, 0], dtype=np.int64)
    node_rows = nodes + drawn_tree.level_offsets[level]
    history_rows = model.history_rows(history[2:], level)
    requests = Requests(Histories.of_rows(history[None]))

    def scores() -> npt.NDArray[np.float32]:
        return TorchScorer(score_of(model)).prepare(requests).scores(0, level, nodes)

    before = scores()
    assert before.shape == (2,)
    read = set(node_rows.tolist()) | (set(history_rows.tolist()) if history_table == "shared" else set())
    others = sorted(set(range(drawn_tree.num_nodes)) - read)
    _add_one(model, "node_table", others)
    if history_table == "separate":
        _add_one(model, "item_table", [1, 2])
    np.testing.assert_array_equal(scores(), before)
    for row in sorted(read):
        _add_one(model, "node_table", [row])
        after = scores()
        assert (after != before).any(), row
        before = after


def _add_one(model: Attention, table: str, rows: list[int]) -> None:
    with torch.no_grad():
        model.get_parameter(table)[rows] += 1.0


@pytest.mark.parametrize("history_table", ["shared", "separate"])
@pytest.mark.parametrize("normalisation", ["none", "layer", "batch"])
def test_requests_are_scored_as_the_plain_network_scores_them(history_table: str, normalisation: str) -> None:
    """In any order, and back and forth; histories longer than the network reads are cut."""
    tree = random_tree(11, branching=2, seed=1, num_leaves=13)
    settings = model_settings(history_table=history_table, normalisation=normalisation)
    model = stirred_model(settings, tree, seed=0)
    histories = random_histories(4, length=5, num_items=11, generator=np.random.default_rng(0))
    longer = np.concatenate([np.where(histories[:, :1] >= 0, 3, -1), histories], axis=1).astype(np.int32)
    scores = TorchScorer(score_of(model).train()).prepare(Requests(Histories.of_rows(longer)))
    for request in (2, 0, 3, 2, 1):
        judge = plain_scores(model, histories[request])
        for level in range(1, tree.height + 1):
            nodes = np.arange(tree.level_sizes[level])[::-1].copy()
            found = scores.scores(request, level, nodes)
            assert found.dtype == np.float32
            assert found == pytest.approx(judge(level, nodes), abs=1e-5)
