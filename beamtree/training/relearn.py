"""Relearning the tree: items are reassigned from the root down to the nodes where their instances score best (Eq. 28).

All items start at the root. A stage moves them from the nodes of one level to nodes `stride` levels deeper: each item
goes, within the capacities, to the candidate below its node that its training instances score highest. Histories are
read through the old tree in all stages.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from beamtree.training.instances import Batch, TrainingInstances
from beamtree.tree.assign import Assign
from beamtree.tree.auction import assign_by_auction
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, Float64Array, Int64Array

MAX_CANDIDATES = 128
INSTANCES_AT_A_TIME = 2048


@dataclass(frozen=True)
class Stage:
    """One step down the tree: items below nodes of level `upper` are assigned to nodes of level `lower`."""

    upper: int
    lower: int


AddScores = Callable[[Float64Array, Batch, Int64Array, Stage], None]
"""Adds to sums (items, candidates) the log-softmax, over the candidates of the target's group (items,), of a batch.

Each instance of the batch has one target."""


@dataclass(frozen=True, eq=False)
class StageScoring:
    """The input of the scores of a stage.

    chosen: the instances that count; node_of_item: (items,), the upper node below which each item is placed.
    """

    tree: ItemTree
    instances: TrainingInstances
    chosen: Int64Array
    node_of_item: Int64Array
    add_scores: AddScores
    stage: Stage


ScoreCandidates = Callable[[StageScoring, Callable[[], None]], Float64Array]
"""Sums the scores of a stage as `score_candidates` does; the second argument is called before each batch."""


@dataclass(frozen=True)
class Relearned:
    """A new tree, and its gain.

    score_before, score_after: the summed log-likelihood of the old and of the new placement in the first stage, where
    all items choose among the same candidates.
    """

    tree: ItemTree
    moved_share: float
    score_before: float
    score_after: float


def relearn_tree(
    tree: ItemTree,
    instances: TrainingInstances,
    *,
    add_scores: AddScores,
    stride: int | None = None,
    instances_per_item: int | None = None,
    assign: Assign = assign_by_auction,
    score: ScoreCandidates | None = None,
    on_step: Callable[[], None] = lambda: None,
) -> Relearned:
    """Reassign every item. stride: levels per stage; None takes the largest with at most 128 candidates.

    instances_per_item: read at most this number of instances of each item, the first ones; None reads all.
    on_step: called before each batch of instances and before each group is assigned; it may raise to stop.
    score: sums the scores of a stage; None does it in this process.
    """
    instances = instances.with_one_target()
    chosen = _capped(instances, tree.num_items, most=instances_per_item)
    node_of_item = np.zeros(tree.num_items, dtype=np.int64)
    scores: list[tuple[float, float]] = []
    for stage in stages(tree, stride=stride):
        sums = (score or score_candidates)(
            StageScoring(tree, instances, chosen, node_of_item, add_scores, stage), on_step
        )
        first, capacities = _candidates(tree, stage)
        current = tree.item_ancestors(np.arange(tree.num_items), stage.lower) - first[node_of_item]
        next_node = np.empty_like(node_of_item)
        by_group = np.argsort(node_of_item, kind="stable")
        groups, starts = np.unique(node_of_item[by_group], return_index=True)
        for group, members in zip(groups, np.split(by_group, starts[1:]), strict=True):
            on_step()
            room = capacities[first[group] : first[group + 1]]
            placed = assign(sums[members, : len(room)], capacities=room, current=current[members])
            next_node[members] = first[group] + placed
        if not scores:
            scores.append((_total(sums, current), _total(sums, next_node - first[node_of_item])))
        node_of_item = next_node
    item_at_leaf = np.full(tree.num_leaves, NOTHING, dtype=np.int32)
    item_at_leaf[node_of_item] = np.arange(tree.num_items)
    moved_share = float((node_of_item != tree.leaf_of_item).mean())
    return Relearned(ItemTree(tree.branching, item_at_leaf), moved_share, *scores[0])


def stages(tree: ItemTree, *, stride: int | None = None) -> list[Stage]:
    """The stages from the root to the leaves; by default with the largest stride of at most 128 candidates."""
    if stride is None:
        stride = 1
        while tree.branching ** (stride + 1) <= MAX_CANDIDATES:
            stride += 1
    return [Stage(upper, min(upper + stride, tree.height)) for upper in range(0, tree.height, stride)]


def _candidates(tree: ItemTree, stage: Stage) -> tuple[Int64Array, Int64Array]:
    """The first candidate of each upper node, closed by their number, and the leaf slots of each candidate."""
    first_leaf, _ = tree.leaf_ranges(np.arange(tree.level_sizes[stage.upper]), stage.upper)
    first = tree.ancestors(first_leaf, stage.lower)
    candidate_first, candidate_end = tree.leaf_ranges(np.arange(tree.level_sizes[stage.lower]), stage.lower)
    return np.append(first, tree.level_sizes[stage.lower]), candidate_end - candidate_first


def score_candidates(scoring: StageScoring, on_step: Callable[[], None]) -> Float64Array:
    """Score (items, candidates) of each item for the candidates below its node; NaN rows for items never a target."""
    tree, chosen = scoring.tree, scoring.chosen
    first, _ = _candidates(tree, scoring.stage)
    sums = np.zeros((tree.num_items, int(np.diff(first).max())))
    has_data = np.zeros(tree.num_items, dtype=np.bool_)
    for begin in range(0, len(chosen), INSTANCES_AT_A_TIME):
        on_step()
        batch = scoring.instances.batch(chosen[begin : begin + INSTANCES_AT_A_TIME])
        scoring.add_scores(sums, batch, scoring.node_of_item, scoring.stage)
        has_data[batch.targets[:, 0]] = True
    sums[~has_data] = np.nan
    return sums


def _total(sums: Float64Array, candidate: Int64Array) -> float:
    """The sum of each item's score for its candidate; items without data count nothing."""
    return float(np.nansum(sums[np.arange(len(sums)), candidate]))


def _capped(instances: TrainingInstances, num_items: int, *, most: int | None) -> Int64Array:
    """Numbers of the instances to read: all, or the first `most` of each target."""
    everyone = np.arange(len(instances), dtype=np.int64)
    if most is None:
        return everyone
    targets = instances.targets()
    order = np.argsort(targets, kind="stable")
    first = np.searchsorted(targets[order], np.arange(num_items))
    place = np.arange(len(order)) - first[targets[order]]
    return np.sort(order[place < most])
