"""The steps by which negatives are drawn down a tree: a first level at once, then child by child, in torch."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from beamtree.model.score import PreparedScore, Score
from beamtree.types import Float32Array, Float64Array, Int32Array, Int64Array


class Paths(NamedTuple):
    """Nodes (instances, draws) of a level, their log q of the same shape, and that of each positive (instances,)."""

    nodes: Int64Array
    log_q: Float32Array
    positive_log_q: Float32Array


class PathSteps:
    """Draws by the scores that a score gives the nodes of its tree, `count` for each instance."""

    def __init__(self, score: Score, *, count: int) -> None:
        tree = score.tree
        self._tree, self._device, self._count = tree, score.device, count
        self.occupied = [np.flatnonzero(tree.occupied(level)) for level in range(tree.height + 1)]

    def from_softmax(
        self, score_nodes: PreparedScore, positives: Int64Array, *, level: int, generator: np.random.Generator
    ) -> Paths:
        """Draws from a level's exact softmax."""
        nodes = self.occupied[level]
        everyone = np.broadcast_to(nodes, (len(positives), len(nodes)))
        log_q = self._scores(score_nodes, everyone, level=level).log_softmax(dim=1).numpy()
        chosen = _choose(log_q[:, None, :], uniform=generator.random((len(positives), self._count)))
        positive = np.searchsorted(nodes, positives)
        rows = np.arange(len(positives))
        return Paths(nodes[chosen], log_q[rows[:, None], chosen], log_q[rows, positive])

    def uniformly(self, instances: int, *, level: int, generator: np.random.Generator) -> Paths:
        """Uniform draws from the nodes of a level."""
        nodes = self.occupied[level]
        drawn = nodes[generator.integers(len(nodes), size=(instances, self._count))]
        log_q = np.float32(-np.log(len(nodes)))
        return Paths(drawn, np.full(drawn.shape, log_q), np.full(instances, log_q))

    def descend(
        self,
        paths: Paths,
        score_nodes: PreparedScore,
        targets: Int32Array,
        *,
        level: int,
        generator: np.random.Generator,
    ) -> Paths:
        """Each path goes on to one child on `level`, by the softmax over its siblings; targets: (instances,)."""
        children, log_share = self._sibling_softmax(score_nodes, paths.nodes, level=level)
        chosen = _choose(log_share, uniform=generator.random(paths.nodes.shape))[..., None]
        return Paths(
            np.take_along_axis(children, chosen, axis=2)[..., 0],
            paths.log_q + np.take_along_axis(log_share, chosen, axis=2)[..., 0],
            paths.positive_log_q + self._log_share(score_nodes, targets, level=level),
        )

    def _log_share(self, score_nodes: PreparedScore, targets: Int32Array, *, level: int) -> Float32Array:
        """The log of each positive's share among its siblings."""
        positives = self._tree.item_ancestors(targets, level)
        parents = self._tree.item_ancestors(targets, level - 1)
        children, log_share = self._sibling_softmax(score_nodes, parents[:, None], level=level)
        place = np.argmax(children[:, 0] == positives[:, None], axis=1)
        return np.take_along_axis(log_share[:, 0], place[:, None], axis=1)[:, 0]

    def _sibling_softmax(
        self, score_nodes: PreparedScore, parents: Int64Array, *, level: int
    ) -> tuple[Int64Array, Float32Array]:
        """Children (instances, parents, branching) on `level`, and the log of their local softmax, -inf for none."""
        first, end = self._tree.child_ranges(parents, level - 1)
        children = first[..., None] + np.arange(self._tree.branching)
        is_child = children < end[..., None]
        is_child &= np.isin(np.where(is_child, children, -1), self.occupied[level])
        readable = np.where(is_child, children, first[..., None])
        scores = self._scores(score_nodes, readable.reshape(len(parents), -1), level=level).reshape(readable.shape)
        scores = scores.masked_fill(torch.from_numpy(~is_child), -torch.inf)
        log_share: Float32Array = scores.log_softmax(dim=2).numpy()
        return children, log_share

    def _scores(self, score_nodes: PreparedScore, nodes: Int64Array, *, level: int) -> Tensor:
        """Scores (instances, columns) of the nodes (instances, columns) of a level."""
        rows = torch.from_numpy(nodes + self._tree.level_offsets[level]).to(self._device)
        return score_nodes([level], rows[None])[0].float().cpu()


def _choose(log_probabilities: Float32Array, *, uniform: Float64Array) -> Int64Array:
    """One choice for each uniform number (..., draws) from a distribution (..., draws or 1, choices)."""
    cumulative = np.exp(log_probabilities.astype(np.float64)).cumsum(axis=-1)
    cumulative /= cumulative[..., -1:]
    return np.asarray((uniform[..., None] >= cumulative).sum(axis=-1))
