"""Measures of sampler, max-heap and loss on every level of the tree, for one history."""

from dataclasses import dataclass, field, fields

import numpy as np

from beamtree.config import Config
from beamtree.diagnostics.deep_levels import compare_some_siblings, descend, draw_paths, estimate_level
from beamtree.diagnostics.heap import (
    best_children,
    best_leaves,
    compare_siblings,
    families,
    share_below_rank,
    top_leaves,
)
from beamtree.diagnostics.node_scores import Occupied
from beamtree.diagnostics.sampling import divergence, log_softmax, top_down_log_q, uniform_log_q
from beamtree.retrieval.beam import ScoreNodes
from beamtree.training.negatives import same_on_every_level
from beamtree.tree.item_tree import ItemTree
from beamtree.types import BoolArray, Float64Array, Int64Array

EXACT_NODES = 2**14
"""Levels up to this size are scored whole, larger ones are estimated."""

DRAWS = 512
"""Nodes drawn of each kind, per history and level, where a level is estimated."""

TOP = 20
"""Number of best leaves whose paths are followed."""


@dataclass(frozen=True)
class LevelPlan:
    """How the levels of a tree are measured, and how training sampled them.

    counts: (height,), negatives of levels 1 to height; taken_whole: (height,), whether training scores all nodes there.
    start: where top-down sampling begins, the first level that is not taken whole; height + 1 if nothing is sampled.
    exact_depth: the deepest level that is scored whole here. beam_width: that of the model.
    """

    occupied: Occupied
    counts: Int64Array
    beam_width: int
    exact_nodes: int = EXACT_NODES
    draws: int = DRAWS
    taken_whole: BoolArray = field(init=False)
    start: int = field(init=False)
    exact_depth: int = field(init=False)

    def __post_init__(self) -> None:
        tree = self.tree
        sizes = np.array([len(nodes) for nodes in self.occupied.nodes[1:]])
        whole = sizes <= self.counts + 1
        start = tree.height + 1 if whole.all() else int(np.argmin(whole)) + 1
        small = np.flatnonzero(
            tree.level_sizes[1:] <= max(self.exact_nodes, int(tree.level_sizes[min(start, tree.height)]))
        )
        object.__setattr__(self, "taken_whole", whole)
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "exact_depth", int(small[-1]) + 1)

    @property
    def tree(self) -> ItemTree:
        """The tree that is measured."""
        return self.occupied.tree

    @classmethod
    def of(cls, tree: ItemTree, *, config: Config) -> "LevelPlan":
        """For a tree that was trained with these settings."""
        counts = same_on_every_level(tree, config.training.negatives)
        return cls(Occupied(tree), counts, config.retrieval.beam_width)


@dataclass(frozen=True)
class LevelMeasures:
    """What one history shows, each (height,) for levels 1 to height; NaN where a level has no such number.

    uniform, from_root, from_level: KL(Q || P) of the three samplers. loss: cross-entropy of the target's ancestor.
    child_violations, leaf_violations: share of sibling pairs whose order contradicts that of their best children, or of
    the best leaves below; path_violations: the latter among siblings on the way to the top leaves. lost_paths: share of
    the top leaves whose ancestor is not among the best `beam_width` of its level.
    """

    uniform: Float64Array
    from_root: Float64Array
    from_level: Float64Array
    loss: Float64Array
    child_violations: Float64Array
    leaf_violations: Float64Array
    path_violations: Float64Array
    lost_paths: Float64Array


_MEASURES = tuple(field.name for field in fields(LevelMeasures))


def measure_levels(
    score_nodes: ScoreNodes, *, target: int, plan: LevelPlan, generator: np.random.Generator
) -> LevelMeasures:
    """All measures of one history; target: the dense item that came next."""
    tree, height = plan.tree, plan.tree.height
    found = {name: np.full(height, np.nan) for name in _MEASURES}
    whole = [plan.occupied.scores_of_level(score_nodes, level) for level in range(1, plan.exact_depth + 1)]
    from_root = top_down_log_q(whole, tree=tree, start=1)
    from_level = top_down_log_q(whole, tree=tree, start=plan.start)
    for level, scores in enumerate(whole, start=1):
        log_p = log_softmax(scores)
        found["uniform"][level - 1] = divergence(uniform_log_q(scores), log_p)
        found["from_root"][level - 1] = divergence(from_root[level - 1], log_p)
        found["from_level"][level - 1] = divergence(from_level[level - 1], log_p)
        found["loss"][level - 1] = -log_p[tree.item_ancestors(target, level)]
        if level < plan.exact_depth:
            below = best_children(whole[level], tree=tree, level=level)
            own = families(scores, branching=tree.branching)
            found["child_violations"][level - 1] = compare_siblings(
                own, families(below, branching=tree.branching)
            ).share
    if plan.exact_depth == height:
        _follow_top_leaves(whole, found, plan=plan)
        return LevelMeasures(**found)
    paths = draw_paths(
        from_root[-1], from_level[-1], level=plan.exact_depth, tree=tree, draws=plan.draws, generator=generator
    )
    for level in range(plan.exact_depth, height + 1):
        if level > plan.exact_depth:
            paths = descend(paths, level, occupied=plan.occupied, score_nodes=score_nodes, generator=generator)
            estimate = estimate_level(paths, level, occupied=plan.occupied)
            positive = score_nodes(level, np.atleast_1d(tree.item_ancestors(target, level)))
            found["uniform"][level - 1] = estimate.uniform
            found["from_root"][level - 1] = estimate.from_root
            found["from_level"][level - 1] = estimate.from_level
            found["loss"][level - 1] = estimate.log_total - float(positive[0])
        if level < height:
            found["child_violations"][level - 1] = compare_some_siblings(
                level, occupied=plan.occupied, score_nodes=score_nodes, draws=plan.draws, generator=generator
            ).share
    return LevelMeasures(**found)


def _follow_top_leaves(whole: list[Float64Array], found: dict[str, Float64Array], *, plan: LevelPlan) -> None:
    """What needs the scores of all leaves: the order of the best leaves, and the ways to the best of all."""
    tree = plan.tree
    best = best_leaves(whole[-1], tree=tree)
    top = top_leaves(whole[-1], count=TOP)
    for level in range(1, tree.height):
        scores = whole[level - 1]
        own, below = (families(values, branching=tree.branching) for values in (scores, best[level]))
        on_path = np.unique(tree.ancestors(top, level - 1))
        found["leaf_violations"][level - 1] = compare_siblings(own, below).share
        found["path_violations"][level - 1] = compare_siblings(own[on_path], below[on_path]).share
        found["lost_paths"][level - 1] = share_below_rank(scores, tree.ancestors(top, level), width=plan.beam_width)
