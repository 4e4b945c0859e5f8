"""DTR(T): negatives drawn down the tree by the model itself (Eq. 22-23), in torch.

Each of M paths picks a child by the softmax over its siblings; a node's probability is the product along its path. The
first M nodes come from the exact softmax of the first level that is too large to be taken whole, or from the root on;
or every level is drawn from its own, the reference that the others are measured against.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from beamtree.config import PathCorrection, PathMode, PathStart
from beamtree.model.preference import PreferenceModel
from beamtree.model.scoring import first_layer_in_blocks, history_table_rows
from beamtree.training.instances import Batch
from beamtree.training.negatives import ABSENT, Candidates, whole_level
from beamtree.tree.item_tree import ItemTree

Int64Array = npt.NDArray[np.int64]


class TreeNegatives:
    """Samples each level in proportion to what the model itself expects there."""

    def __init__(
        self,
        model: PreferenceModel,
        tree: ItemTree,
        *,
        count: int,
        start: PathStart = "level",
        correction: PathCorrection = "negatives",
        mode: PathMode = "evaluation",
    ) -> None:
        """count: draws per level.

        correction: "negatives" divides q by 1 - q of the positive, because the loss wants the distribution over the
        negatives alone; "published" leaves that out. mode: whether draws go by the model as it is in use, or with the
        dropout and the batch statistics of training.
        """
        self._model = model
        self._tree = tree
        self._count = count
        self._start = start
        self._correction = correction
        self._dropout_generator = torch.Generator(model.node_table.device) if mode == "training" else None
        self._occupied = [np.flatnonzero(tree.occupied(level)) for level in range(tree.height + 1)]

    @torch.no_grad()
    def draw(self, batch: Batch, *, generator: np.random.Generator) -> Candidates:
        """Candidates for each level and instance; no gradient flows through the choice."""
        tree, count, instances = self._tree, self._count, len(batch.targets)
        node_rows = np.full((tree.height, instances, count + 1), ABSENT, dtype=np.int64)
        log_correction = np.zeros(node_rows.shape, dtype=np.float32)
        paths = np.zeros((instances, count), dtype=np.int64)
        path_log_q = np.zeros(paths.shape, dtype=np.float32)
        positive_log_q = np.zeros(instances, dtype=np.float32)
        is_sampling = self._start == "root"
        if self._dropout_generator is not None:
            self._dropout_generator.manual_seed(int(generator.integers(2**63)))
        for level in range(1, tree.height + 1):
            positives = tree.item_ancestors(batch.targets, level)
            whole = len(self._occupied[level]) <= count + 1
            if is_sampling:
                paths, path_log_q = self._descend(batch, paths, path_log_q, level=level, generator=generator)
                positive_log_q = positive_log_q + self._log_share_among_siblings(batch, positives, level=level)
            elif not whole:
                paths, path_log_q, positive_log_q = self._sample_level(batch, level=level, generator=generator)
                is_sampling = self._start != "every"
            if whole:
                node_rows[level - 1, :, : len(self._occupied[level])] = whole_level(self._occupied[level], positives)
            else:
                is_negative = paths != positives[:, None]
                node_rows[level - 1, :, 0] = positives
                node_rows[level - 1, :, 1:] = np.where(is_negative, paths, ABSENT)
                effective = np.maximum(is_negative.sum(axis=1), 1)
                if self._correction == "negatives":
                    path_correction = path_log_q - np.log1p(-np.exp(np.minimum(positive_log_q, -1e-6)))[:, None]
                else:
                    path_correction = path_log_q
                log_correction[level - 1, :, 1:] = np.where(
                    is_negative, np.log(effective)[:, None] + path_correction, 0.0
                )
            rows = node_rows[level - 1]
            rows[rows != ABSENT] += tree.level_offsets[level]
        return Candidates(node_rows=node_rows, log_correction=log_correction)

    def _sample_level(
        self, batch: Batch, *, level: int, generator: np.random.Generator
    ) -> tuple[Int64Array, npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Draws from a level's exact softmax, their log q, and that of the positive."""
        nodes = self._occupied[level]
        everyone = np.broadcast_to(nodes, (len(batch.targets), len(nodes)))
        log_q = self._scores(batch, everyone, level=level).log_softmax(dim=1).numpy()
        chosen = _choose(log_q[:, None, :], uniform=generator.random((len(batch.targets), self._count)))
        positive = np.searchsorted(nodes, self._tree.item_ancestors(batch.targets, level))
        rows = np.arange(len(batch.targets))
        return nodes[chosen], log_q[rows[:, None], chosen], log_q[rows, positive]

    def _descend(
        self,
        batch: Batch,
        paths: Int64Array,
        path_log_q: npt.NDArray[np.float32],
        *,
        level: int,
        generator: np.random.Generator,
    ) -> tuple[Int64Array, npt.NDArray[np.float32]]:
        """Each path goes on to one child on `level`, by the softmax over its siblings."""
        children, log_share = self._sibling_softmax(batch, paths, level=level)
        chosen = _choose(log_share, uniform=generator.random(paths.shape))[..., None]
        next_paths = np.take_along_axis(children, chosen, axis=2)[..., 0]
        return next_paths, path_log_q + np.take_along_axis(log_share, chosen, axis=2)[..., 0]

    def _log_share_among_siblings(self, batch: Batch, positives: Int64Array, *, level: int) -> npt.NDArray[np.float32]:
        parents = self._tree.item_ancestors(batch.targets, level - 1)
        children, log_share = self._sibling_softmax(batch, parents[:, None], level=level)
        place = np.argmax(children[:, 0] == positives[:, None], axis=1)
        return np.take_along_axis(log_share[:, 0], place[:, None], axis=1)[:, 0]

    def _sibling_softmax(
        self, batch: Batch, parents: Int64Array, *, level: int
    ) -> tuple[Int64Array, npt.NDArray[np.float32]]:
        """Children (instances, parents, branching) on `level`, and the log of their local softmax, -inf for none."""
        first, end = self._tree.child_ranges(parents, level - 1)
        children = first[..., None] + np.arange(self._tree.branching)
        is_child = children < end[..., None]
        is_child &= np.isin(np.where(is_child, children, -1), self._occupied[level])
        readable = np.where(is_child, children, first[..., None])
        scores = self._scores(batch, readable.reshape(len(parents), -1), level=level).reshape(readable.shape)
        scores = scores.masked_fill(torch.from_numpy(~is_child), -torch.inf)
        log_share: npt.NDArray[np.float32] = scores.log_softmax(dim=2).numpy()
        return children, log_share

    def _scores(self, batch: Batch, nodes: Int64Array, *, level: int) -> Tensor:
        """Scores (instances, columns) of the nodes (instances, columns) of a level, in the mode for draws."""
        model, dropout, device = self._model, self._dropout_generator, self._model.node_table.device
        node_rows = torch.from_numpy(nodes + self._tree.level_offsets[level]).to(device)
        history_rows = history_table_rows(model, self._tree, items=batch.histories, level=level)
        vectors = model.history_table[torch.from_numpy(np.maximum(history_rows, 0)).to(device)]
        present = torch.from_numpy(history_rows >= 0).to(device)
        with _mode_of(model, is_training=dropout is not None):
            first_layer = first_layer_in_blocks(model, vectors, model.node_table[node_rows], present=present)
            scores = model.score_first_layer(first_layer, dropout_generator=dropout)
        return scores.float().cpu()


@contextmanager
def _mode_of(model: PreferenceModel, *, is_training: bool) -> Iterator[None]:
    """The model as it is in use, or as in training but for its running statistics, which stay."""
    was_training = model.training
    norms = [norm for norm in model.norm if isinstance(norm, torch.nn.BatchNorm1d)]
    model.train(is_training)
    for norm in norms:
        norm.track_running_stats = not is_training
    try:
        yield
    finally:
        model.train(was_training)
        for norm in norms:
            norm.track_running_stats = True


def _choose(log_probabilities: npt.NDArray[np.float32], *, uniform: npt.NDArray[np.float64]) -> Int64Array:
    """One choice for each uniform number (..., draws) from a distribution (..., draws or 1, choices)."""
    cumulative = np.exp(log_probabilities.astype(np.float64)).cumsum(axis=-1)
    cumulative /= cumulative[..., -1:]
    return np.asarray((uniform[..., None] >= cumulative).sum(axis=-1))
