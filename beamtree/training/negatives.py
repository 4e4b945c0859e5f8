"""Negatives for the softmax of each level, and the correction for how they were drawn (Eq. 20)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from beamtree.training.instances import Batch
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, Float32Array, Int64Array

if TYPE_CHECKING:
    from beamtree.model.score import Score
    from beamtree.native.training import Negatives


@dataclass(frozen=True)
class Candidates:
    """The positive and the negatives of each instance on each level; column 0 is the positive, the target's ancestor.

    node_rows: (levels, instances, columns), nodes numbered over the whole tree, -1 where a column holds none, and
    throughout on levels that are not learned.
    log_correction: the same shape, to be subtracted from the scores: ln of the expected number of times a negative
    is drawn; 0 for the positive and on levels that are taken whole.
    """

    node_rows: Int64Array
    log_correction: Float32Array


class Draws(Protocol):
    """Draws the candidates of a batch on the levels of one tree."""

    def draw(self, batch: Batch, *, generator: np.random.Generator) -> Candidates:
        """Candidates for each level and instance; the instances have one target each."""


class NegativeSampler(Protocol):
    """How negatives are drawn: a choice that holds for every tree and every round of a fit."""

    @property
    def name(self) -> str:
        """What checkpoints call it, options included: one with another name is not resumed."""

    def draws(self, score: Score) -> Draws:
        """Its draws for a score over a tree, in torch; InputError for a score that it cannot draw by."""

    def in_kernels(self, tree: ItemTree) -> Negatives | None:
        """The same in the compiled kernels; None if they do not support it and the score has to be trained in torch."""


@dataclass(frozen=True)
class UniformSampler:
    """DTR(U): `count` negatives on each level, drawn uniformly."""

    count: int

    @property
    def name(self) -> str:
        """As in `NegativeSampler`."""
        return f"uniformly, {self.count} per level"

    def draws(self, score: Score) -> Draws:
        """As in `NegativeSampler`."""
        counts = same_on_every_level(score.tree, self.count)
        return UniformNegatives(score.tree, counts=counts, levels=score.learned_levels())

    def in_kernels(self, tree: ItemTree) -> Negatives:
        """As in `NegativeSampler`."""
        from beamtree.native.training import Negatives

        return Negatives(same_on_every_level(tree, self.count), sampler="uniform")


class UniformNegatives:
    """Uniform over the nodes of a level; levels that fit are taken whole."""

    def __init__(self, tree: ItemTree, *, counts: Int64Array, levels: Sequence[int] | None = None) -> None:
        """counts: (height,), negatives for levels 1 to height. levels: those that are learned; None is all of them."""
        self._tree = tree
        self._counts = counts
        self._levels = range(1, tree.height + 1) if levels is None else levels
        self._occupied = [np.flatnonzero(tree.occupied(level)) for level in range(tree.height + 1)]

    def draw(self, batch: Batch, *, generator: np.random.Generator) -> Candidates:
        """Candidates for each level and instance."""
        targets = batch.targets[:, 0]
        height, columns = self._tree.height, int(self._counts.max()) + 1
        node_rows = np.full((height, len(targets), columns), NOTHING, dtype=np.int64)
        log_correction = np.zeros(node_rows.shape, dtype=np.float32)
        for level in self._levels:
            positives = self._tree.item_ancestors(targets, level)
            nodes, count = self._occupied[level], int(self._counts[level - 1])
            rows, correction = node_rows[level - 1], log_correction[level - 1]
            if len(nodes) <= count + 1:
                rows[:, : len(nodes)] = whole_level(nodes, positives)
            else:
                drawn = nodes[generator.integers(len(nodes), size=(len(targets), count))]
                is_negative = drawn != positives[:, None]
                rows[:, 0] = positives
                rows[:, 1 : count + 1] = np.where(is_negative, drawn, NOTHING)
                effective = np.maximum(is_negative.sum(axis=1, keepdims=True), 1)
                correction[:, 1 : count + 1] = np.log(effective / (len(nodes) - 1))
            rows[rows != NOTHING] += self._tree.level_offsets[level]
        return Candidates(node_rows=node_rows, log_correction=log_correction)


def same_on_every_level(tree: ItemTree, count: int) -> Int64Array:
    """`count` negatives for each of levels 1 to height: (height,)."""
    return np.full(tree.height, count, dtype=np.int64)


def whole_level(nodes: Int64Array, positives: Int64Array) -> Int64Array:
    """All nodes for each positive, (positives, nodes), the positive swapped into column 0."""
    everyone = np.broadcast_to(nodes, (len(positives), len(nodes))).copy()
    where = np.searchsorted(nodes, positives)
    everyone[np.arange(len(positives)), where] = nodes[0]
    everyone[:, 0] = positives
    return everyone
