"""Node-wise binary cross-entropy (TDM, JTM and PLT), and its positive and negative nodes.

Positives are the targets' ancestors: in a tree of four leaves with the target on leaf 2, node 1 of level 1 and leaf 2.
Negatives of PLT are their siblings, node 0 and leaf 3; those of TDM are drawn from each level without replacement.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from beamtree.baselines.trees.node_scores import NodeScores
from beamtree.model.score import Score
from beamtree.training.instances import Batch
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, BoolArray, Float32Array, Int32Array, Int64Array


@dataclass(frozen=True, eq=False)
class LabelledNodes:
    """rows: (levels, instances, columns), nodes numbered over the whole tree, -1 where a column holds none, levels
    from 1 to the height. labels: the same shape, 1 for ancestors of a target, else 0."""

    rows: Int64Array
    labels: Float32Array


class ChooseNodes(Protocol):
    """Chooses positives and negatives for targets (instances, targets), -1 where an instance has fewer."""

    def __call__(self, targets: Int32Array, *, generator: np.random.Generator) -> LabelledNodes:
        """Each node at most once for each instance and level."""


class UniformNodes:
    """TDM and JTM: all positives, and `negatives` of the other nodes of each level, without replacement.

    A level with at most as many nodes is taken whole.
    """

    def __init__(self, tree: ItemTree, *, negatives: int) -> None:
        self._tree = tree
        self._negatives = negatives
        self._occupied = [np.flatnonzero(tree.occupied(level)) for level in range(tree.height + 1)]

    def __call__(self, targets: Int32Array, *, generator: np.random.Generator) -> LabelledNodes:
        """As `ChooseNodes`."""
        tree, columns = self._tree, targets.shape[1] + self._negatives
        rows = np.full((tree.height, len(targets), columns), NOTHING, dtype=np.int64)
        labels = np.zeros(rows.shape, dtype=np.float32)
        for level in range(1, tree.height + 1):
            nodes, positives = self._occupied[level], distinct(tree.item_ancestors(targets, level))
            if len(nodes) <= columns:
                chosen = np.broadcast_to(nodes, (len(targets), len(nodes)))
                is_positive = (chosen[:, :, None] == positives[:, None]).any(axis=2)
            else:
                places = np.where(positives == NOTHING, NOTHING, np.searchsorted(nodes, positives))
                drawn = nodes[draw_others(places, limit=len(nodes), count=self._negatives, generator=generator)]
                chosen = np.concatenate([positives, drawn], axis=1)
                is_positive = np.arange(chosen.shape[1]) < positives.shape[1]
            width = chosen.shape[1]
            rows[level - 1, :, :width] = np.where(chosen == NOTHING, NOTHING, chosen + tree.level_offsets[level])
            labels[level - 1, :, :width] = is_positive & (chosen != NOTHING)
        return LabelledNodes(rows, labels)


class SiblingNodes:
    """PLT: on each level the children of the targets' ancestors above, the ancestors of the targets being positive."""

    def __init__(self, tree: ItemTree) -> None:
        self._tree = tree
        self._occupied = [tree.occupied(level) for level in range(tree.height + 1)]

    def __call__(self, targets: Int32Array, *, generator: np.random.Generator) -> LabelledNodes:  # noqa: ARG002
        """As `ChooseNodes`; nothing is drawn."""
        tree, columns = self._tree, targets.shape[1] * self._tree.branching
        rows = np.full((tree.height, len(targets), columns), NOTHING, dtype=np.int64)
        labels = np.zeros(rows.shape, dtype=np.float32)
        for level in range(1, tree.height + 1):
            parents = distinct(tree.item_ancestors(targets, level - 1))
            positives = tree.item_ancestors(targets, level)
            children = children_of(tree, parents, level - 1).reshape(len(targets), -1)
            exists = (children != NOTHING) & self._occupied[level][children]
            is_positive = (children[:, :, None] == positives[:, None]).any(axis=2)
            rows[level - 1] = np.where(exists, children + tree.level_offsets[level], NOTHING)
            labels[level - 1] = is_positive & exists
        return LabelledNodes(rows, labels)


def children_of(tree: ItemTree, nodes: Int64Array, level: int) -> Int64Array:
    """Children (..., branching) of nodes (...) of a level, on the next; -1 where there is none."""
    first, end = tree.child_ranges(np.maximum(nodes, 0), level)
    children = first[..., None] + np.arange(tree.branching)
    exists: BoolArray = (children < end[..., None]) & (nodes != NOTHING)[..., None]
    return np.where(exists, children, NOTHING)


def distinct(nodes: Int64Array) -> Int64Array:
    """Nodes (rows, columns) with each once in its row, -1 in place of repeats; rows fall, so that -1 comes last."""
    falling = -np.sort(-nodes, axis=1)
    falling[:, 1:][falling[:, 1:] == falling[:, :-1]] = NOTHING
    return -np.sort(-falling, axis=1)


def draw_others(excluded: Int64Array, *, limit: int, count: int, generator: np.random.Generator) -> Int64Array:
    """For each row, `count` different numbers below `limit` that are not among the excluded, drawn uniformly.

    excluded: (rows, columns), distinct in each row, falling, -1 for none; limit: at least columns + count.
    Numbers are drawn without replacement from what is left (Floyd's method), and then moved over the excluded ones.
    """
    num_left = limit - (excluded != NOTHING).sum(axis=1)
    drawn = np.full((len(excluded), count), NOTHING, dtype=np.int64)
    for place in range(count):
        highest = num_left - count + place
        number = generator.integers(highest + 1)
        is_taken = (drawn == number[:, None]).any(axis=1)
        drawn[:, place] = np.where(is_taken, highest, number)
    for column in reversed(range(excluded.shape[1])):
        barrier = excluded[:, column, None]
        drawn += (drawn >= barrier) & (barrier != NOTHING)
    return drawn


@dataclass(frozen=True)
class NodewiseLoss:
    """The mean cross-entropy over the nodes that `choose` picks and labels, on all levels and for all instances."""

    choose: ChooseNodes

    def __call__(self, score: Score, batch: Batch, generator: torch.Generator) -> Tensor:
        """As `NodeLoss`."""
        chosen = self.choose(batch.targets, generator=numpy_stream(generator))
        rows = torch.from_numpy(chosen.rows)
        score_nodes = NodeScores(score, batch.requests, dropout=generator if score.training else None)
        scores = score_nodes(range(1, len(rows) + 1), rows)
        return binary_cross_entropy(scores, torch.from_numpy(chosen.labels), present=rows >= 0)


def binary_cross_entropy(scores: Tensor, labels: Tensor, *, present: Tensor) -> Tensor:
    """Mean of -z ln s(o) - (1 - z) ln(1 - s(o)) where there is a node; all of the same shape."""
    return binary_cross_entropy_with_logits(scores[present], labels[present])


def numpy_stream(generator: torch.Generator) -> np.random.Generator:
    """NumPy's generator with a seed that torch's draws."""
    return np.random.default_rng(int(torch.randint(2**62, (), generator=generator, device=generator.device)))
