"""DTR(T): negatives drawn top-down through the tree by the model (Eq. 22-23).

Each of M paths picks a child by the softmax over its siblings; a node's probability is the product along its path. The
first M nodes come from the exact softmax of the first level that is too large to be taken whole. Where only the last
levels are learned, nothing above them has a score to descend by: unless their first one is taken whole, the first M
nodes are drawn uniformly there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from beamtree.model.score import Score
from beamtree.training.instances import Batch
from beamtree.training.negatives import Candidates, Draws, same_on_every_level, whole_level
from beamtree.training.paths import Paths, PathSteps
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, Float32Array, Int64Array

if TYPE_CHECKING:
    from beamtree.native.training import Negatives


@dataclass(frozen=True)
class TreeSampler:
    """DTR(T): `count` paths down the tree."""

    count: int

    @property
    def name(self) -> str:
        """As in `NegativeSampler`."""
        return f"down the tree, {self.count} paths"

    def draws(self, score: Score) -> Draws:
        """As in `NegativeSampler`."""
        return TreeNegatives(score, count=self.count)

    def in_kernels(self, tree: ItemTree) -> Negatives:
        """As in `NegativeSampler`."""
        from beamtree.native.training import Negatives

        return Negatives(same_on_every_level(tree, self.count), sampler="top_down")


class TreeNegatives:
    """Samples each level in proportion to what the model, as it is in use, expects there."""

    def __init__(self, score: Score, *, count: int) -> None:
        """count: draws per level."""
        self._score, self._count = score, count
        self._steps = PathSteps(score, count=count)
        self._first_level = min(score.learned_levels(), default=1)

    @torch.no_grad()
    def draw(self, batch: Batch, *, generator: np.random.Generator) -> Candidates:
        """Candidates for each level and instance; no gradient flows through the choice."""
        tree, steps, targets = self._score.tree, self._steps, batch.targets[:, 0]
        found = empty_candidates(tree, len(batch), count=self._count)
        score_nodes = self._score.prepare(batch.requests)
        paths: Paths | None = None
        with evaluation_mode(self._score):
            for level in range(self._first_level, tree.height + 1):
                positives = tree.item_ancestors(targets, level)
                if paths is not None:
                    paths = steps.descend(paths, score_nodes, targets, level=level, generator=generator)
                elif len(steps.occupied[level]) > self._count + 1:
                    if 1 < level == self._first_level:
                        paths = steps.uniformly(len(batch), level=level, generator=generator)
                    else:
                        paths = steps.from_softmax(score_nodes, positives, level=level, generator=generator)
                if paths is None:
                    fill_whole(found, positives, nodes=steps.occupied[level], level=level, tree=tree)
                else:
                    log_q = among_negatives(paths)
                    fill_drawn(found, positives, paths.nodes, log_q=log_q, level=level, tree=tree)
        return found


def empty_candidates(tree: ItemTree, instances: int, *, count: int) -> Candidates:
    """No candidates yet on any level, with room for `count` negatives."""
    node_rows = np.full((tree.height, instances, count + 1), NOTHING, dtype=np.int64)
    return Candidates(node_rows, np.zeros(node_rows.shape, dtype=np.float32))


def fill_whole(candidates: Candidates, positives: Int64Array, *, nodes: Int64Array, level: int, tree: ItemTree) -> None:
    """Take a level whole: all its nodes (nodes,), each positive in front."""
    rows = candidates.node_rows[level - 1]
    rows[:, : len(nodes)] = whole_level(nodes, positives) + tree.level_offsets[level]


def fill_drawn(
    candidates: Candidates,
    positives: Int64Array,
    drawn: Int64Array,
    *,
    log_q: Float32Array,
    level: int,
    tree: ItemTree,
) -> None:
    """Take the draws (instances, draws) of a level, except where they hit the positive (instances,).

    log_q: (instances, draws), that of each draw; the correction adds ln of how many draws there are.
    """
    is_negative = drawn != positives[:, None]
    rows = candidates.node_rows[level - 1]
    rows[:, 0] = positives + tree.level_offsets[level]
    rows[:, 1:] = np.where(is_negative, drawn + tree.level_offsets[level], NOTHING)
    effective = np.maximum(is_negative.sum(axis=1), 1)
    candidates.log_correction[level - 1, :, 1:] = np.where(is_negative, np.log(effective)[:, None] + log_q, 0.0)


def among_negatives(paths: Paths) -> Float32Array:
    """The log q of each draw as a distribution over the negatives alone: divided by 1 - q of the positive."""
    return paths.log_q - np.log1p(-np.exp(np.minimum(paths.positive_log_q, -1e-6)))[:, None]


@contextmanager
def evaluation_mode(score: Score) -> Iterator[None]:
    """Inside, the score is as it is in use; then in the mode that it was in."""
    was_training = score.training
    score.eval()
    try:
        yield
    finally:
        score.train(was_training)
