"""DTR(T): negatives drawn down the tree by the model itself (Eq. 22-23), in torch.

Each of M paths picks a child by the softmax over its siblings; a node's probability is the product along its path. The
first M nodes come from the exact softmax of the first level that is too large to be taken whole, or from the root on;
or every level is drawn from its own, the reference that the others are measured against. Where only the last levels
are learned, nothing above them has a score to descend by: unless their first one is taken whole, the first M nodes are
drawn uniformly there.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from beamtree.config import PathCorrection, PathMode, PathStart
from beamtree.errors import InputError
from beamtree.model.score import PreparedScore, Score
from beamtree.training.instances import Batch
from beamtree.training.negatives import Candidates, whole_level
from beamtree.types import NOTHING, Float32Array, Float64Array, Int32Array, Int64Array


class TreeNegatives:
    """Samples each level in proportion to what the model itself expects there."""

    def __init__(
        self,
        score: Score,
        *,
        count: int,
        start: PathStart = "level",
        correction: PathCorrection = "negatives",
        mode: PathMode = "evaluation",
    ) -> None:
        """count: draws per level.

        correction: "negatives" divides q by 1 - q of the positive, because the loss wants the distribution over the
        negatives alone; "published" leaves that out. mode: whether draws go by the model as it is in use, or with the
        dropout and the batch statistics of training. InputError for paths from the root where the levels below it are
        not learned.
        """
        tree = score.tree
        self._score = score
        self._tree = tree
        self._first_level = min(score.learned_levels(), default=1)
        if self._first_level > 1 and start == "root":
            raise InputError(
                f"Expected paths that start at a level, as levels above {self._first_level} are not learned, got "
                "start = 'root'. Set training.path_start to 'level', or learn all levels (model.attention_levels)."
            )
        self._count = count
        self._start = start
        self._correction = correction
        self._dropout_generator = torch.Generator(score.device) if mode == "training" else None
        self._occupied = [np.flatnonzero(tree.occupied(level)) for level in range(tree.height + 1)]

    @torch.no_grad()
    def draw(self, batch: Batch, *, generator: np.random.Generator) -> Candidates:
        """Candidates for each level and instance; no gradient flows through the choice."""
        tree, count, instances = self._tree, self._count, len(batch)
        targets = batch.targets[:, 0]
        node_rows = np.full((tree.height, instances, count + 1), NOTHING, dtype=np.int64)
        log_correction = np.zeros(node_rows.shape, dtype=np.float32)
        paths = np.zeros((instances, count), dtype=np.int64)
        path_log_q = np.zeros(paths.shape, dtype=np.float32)
        positive_log_q = np.zeros(instances, dtype=np.float32)
        is_sampling = self._start == "root"
        if self._dropout_generator is not None:
            self._dropout_generator.manual_seed(int(generator.integers(2**63)))
        score_nodes = self._score.prepare(batch.requests, dropout=self._dropout_generator)
        for level in range(self._first_level, tree.height + 1):
            positives = tree.item_ancestors(targets, level)
            whole = len(self._occupied[level]) <= count + 1
            is_uniform = not whole and 1 < level == self._first_level and self._start == "level"
            if is_sampling:
                paths, path_log_q = self._descend(score_nodes, paths, path_log_q, level=level, generator=generator)
                positive_log_q = positive_log_q + self._log_share(score_nodes, targets, positives, level=level)
            elif is_uniform:
                paths, path_log_q, positive_log_q = self._sample_uniformly(instances, level=level, generator=generator)
                is_sampling = True
            elif not whole:
                paths, path_log_q, positive_log_q = self._sample_level(
                    score_nodes, positives, level=level, generator=generator
                )
                is_sampling = self._start != "every"
            if whole:
                node_rows[level - 1, :, : len(self._occupied[level])] = whole_level(self._occupied[level], positives)
            else:
                is_negative = paths != positives[:, None]
                node_rows[level - 1, :, 0] = positives
                node_rows[level - 1, :, 1:] = np.where(is_negative, paths, NOTHING)
                effective = np.maximum(is_negative.sum(axis=1), 1)
                if self._correction == "negatives" or is_uniform:
                    path_correction = path_log_q - np.log1p(-np.exp(np.minimum(positive_log_q, -1e-6)))[:, None]
                else:
                    path_correction = path_log_q
                log_correction[level - 1, :, 1:] = np.where(
                    is_negative, np.log(effective)[:, None] + path_correction, 0.0
                )
            rows = node_rows[level - 1]
            rows[rows != NOTHING] += tree.level_offsets[level]
        return Candidates(node_rows=node_rows, log_correction=log_correction)

    def _sample_level(
        self, score_nodes: PreparedScore, positives: Int64Array, *, level: int, generator: np.random.Generator
    ) -> tuple[Int64Array, Float32Array, Float32Array]:
        """Draws from a level's exact softmax, their log q, and that of the positive."""
        nodes = self._occupied[level]
        everyone = np.broadcast_to(nodes, (len(positives), len(nodes)))
        log_q = self._scores(score_nodes, everyone, level=level).log_softmax(dim=1).numpy()
        chosen = _choose(log_q[:, None, :], uniform=generator.random((len(positives), self._count)))
        positive = np.searchsorted(nodes, positives)
        rows = np.arange(len(positives))
        return nodes[chosen], log_q[rows[:, None], chosen], log_q[rows, positive]

    def _sample_uniformly(
        self, instances: int, *, level: int, generator: np.random.Generator
    ) -> tuple[Int64Array, Float32Array, Float32Array]:
        """Draws from a level whose nodes are all as likely, their log q, and that of the positive."""
        nodes = self._occupied[level]
        drawn = nodes[generator.integers(len(nodes), size=(instances, self._count))]
        log_q = np.float32(-np.log(len(nodes)))
        return drawn, np.full(drawn.shape, log_q), np.full(instances, log_q)

    def _descend(
        self,
        score_nodes: PreparedScore,
        paths: Int64Array,
        path_log_q: Float32Array,
        *,
        level: int,
        generator: np.random.Generator,
    ) -> tuple[Int64Array, Float32Array]:
        """Each path goes on to one child on `level`, by the softmax over its siblings."""
        children, log_share = self._sibling_softmax(score_nodes, paths, level=level)
        chosen = _choose(log_share, uniform=generator.random(paths.shape))[..., None]
        next_paths = np.take_along_axis(children, chosen, axis=2)[..., 0]
        return next_paths, path_log_q + np.take_along_axis(log_share, chosen, axis=2)[..., 0]

    def _log_share(
        self, score_nodes: PreparedScore, targets: Int32Array, positives: Int64Array, *, level: int
    ) -> Float32Array:
        """The log of each positive's share among its siblings."""
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
        is_child &= np.isin(np.where(is_child, children, -1), self._occupied[level])
        readable = np.where(is_child, children, first[..., None])
        scores = self._scores(score_nodes, readable.reshape(len(parents), -1), level=level).reshape(readable.shape)
        scores = scores.masked_fill(torch.from_numpy(~is_child), -torch.inf)
        log_share: Float32Array = scores.log_softmax(dim=2).numpy()
        return children, log_share

    def _scores(self, score_nodes: PreparedScore, nodes: Int64Array, *, level: int) -> Tensor:
        """Scores (instances, columns) of the nodes (instances, columns) of a level, in the mode for draws."""
        rows = torch.from_numpy(nodes + self._tree.level_offsets[level]).to(self._score.device)
        with _mode_of(self._score, is_training=self._dropout_generator is not None):
            return score_nodes([level], rows[None])[0].float().cpu()


@contextmanager
def _mode_of(score: Score, *, is_training: bool) -> Iterator[None]:
    """The score as it is in use, or as in training but for its running statistics, which stay."""
    was_training = score.training
    norms = [module for module in score.modules() if isinstance(module, _BatchNorm)]
    score.train(is_training)
    for norm in norms:
        norm.track_running_stats = not is_training
    try:
        yield
    finally:
        score.train(was_training)
        for norm in norms:
            norm.track_running_stats = True


def _choose(log_probabilities: Float32Array, *, uniform: Float64Array) -> Int64Array:
    """One choice for each uniform number (..., draws) from a distribution (..., draws or 1, choices)."""
    cumulative = np.exp(log_probabilities.astype(np.float64)).cumsum(axis=-1)
    cumulative /= cumulative[..., -1:]
    return np.asarray((uniform[..., None] >= cumulative).sum(axis=-1))
