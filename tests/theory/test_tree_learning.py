"""Section 4.4: items are placed anew, from the root down, in strides."""

from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.data.split import split_none
from beamtree.training.instances import Batch, TrainingInstances
from beamtree.training.relearn import AddScores, Stage, relearn_tree
from beamtree.tree.assign import Assign, assign_balanced, assign_residents_first, by_regret
from beamtree.tree.auction import assign_by_auction
from beamtree.tree.build import plant
from research.placement import by_score
from tests.small import random_tree, sequences_of

Float64Array = npt.NDArray[np.float64]
ITEMS = "abcdefgh"


GREEDY = partial(assign_balanced, priority=by_score)


def instances_of(targets: list[int]) -> TrainingInstances:
    """One instance for each target, all after item 0."""
    sequences = sequences_of([[0, target] for target in targets])
    return TrainingInstances(sequences, split_none(sequences).train, first_target=1)


def add_table(tables: dict[Stage, Float64Array]) -> AddScores:
    """Scores (items, candidates) by stage instead of a model."""

    def add_scores(sums: Float64Array, batch: Batch, _groups: npt.NDArray[np.int64], stage: Stage) -> None:
        targets = batch.targets[:, 0]
        sums[targets] += tables[stage][targets, : sums.shape[1]]

    return add_scores


@pytest.mark.parametrize("assign", [GREEDY, assign_residents_first])
def test_the_figure_of_the_tree_update(assign: Assign) -> None:
    """Eight items, d = 2. f likes node 4 best, but b and c fill it, so that f goes to node 5, its next best.

    Level 2 has the nodes 3 to 6. From there one step is left to the leaves, 7 to 14, two for each node.
    """
    first = np.full((8, 4), -9.0)
    wishes = {"a": 3, "h": 3, "b": 4, "c": 4, "d": 5, "e": 6, "g": 6}
    for item, node in wishes.items():
        first[ITEMS.index(item), node - 3] = -1.0
    first[ITEMS.index("f"), [4 - 3, 5 - 3]] = [-2.0, -3.0]
    second = np.full((8, 2), -5.0)
    for item, side in {"a": 1, "h": 0, "b": 1, "c": 0, "d": 0, "f": 1, "e": 0, "g": 1}.items():
        second[ITEMS.index(item), side] = -1.0
    relearned = relearn_tree(
        plant(np.arange(8), branching=2),
        instances_of(list(range(8))),
        add_scores=add_table({Stage(0, 2): first, Stage(2, 3): second}),
        stride=2,
        assign=assign,
    )
    assert "".join(ITEMS[item] for item in relearned.tree.item_at_leaf) == "hacbdfeg"
    assert relearned.score_after == -7 * 1.0 - 3.0
    assert relearned.score_before == pytest.approx(first[np.arange(8), np.arange(8) // 2].sum())


@settings(max_examples=60, deadline=None)
@given(
    num_items=st.integers(1, 60),
    vacant=st.integers(0, 9),
    branching=st.integers(2, 5),
    stride=st.integers(1, 4),
    assign=st.sampled_from(
        [GREEDY, partial(assign_balanced, priority=by_regret), assign_residents_first, assign_by_auction]
    ),
    with_data=st.floats(0.0, 1.0),
    seed=st.integers(0, 10_000),
)
def test_every_item_gets_a_leaf_of_its_own_whatever_the_scores(
    num_items: int, vacant: int, branching: int, stride: int, assign: Assign, with_data: float, seed: int
) -> None:
    """Ties, scores of -inf and items that were never a target among them."""
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    generator = np.random.default_rng(seed)
    targets = np.flatnonzero(generator.random(num_items) < with_data).tolist() or [0]

    def add_scores(sums: Float64Array, batch: Batch, _groups: npt.NDArray[np.int64], _stage: Stage) -> None:
        drawn = generator.integers(-2, 1, size=(len(batch.targets), sums.shape[1])).astype(np.float64)
        drawn[generator.random(drawn.shape) < 0.3] = -np.inf
        sums[batch.targets[:, 0]] += drawn

    relearned = relearn_tree(tree, instances_of(targets), add_scores=add_scores, stride=stride, assign=assign).tree
    placed = relearned.item_at_leaf[relearned.item_at_leaf >= 0]
    assert sorted(placed.tolist()) == list(range(num_items))
    assert (relearned.branching, relearned.num_leaves) == (tree.branching, tree.num_leaves)
