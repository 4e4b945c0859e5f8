"""The yardstick: the formulas written out directly in torch.

Every (node, history position) gets its own concatenation [a; a*w; w]; all levels from the first are scored; draws are
not merged. It is vectorised, it keeps no gradients where none are needed, and a training step goes level by level,
which suits a CPU's memory better than all levels at once.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from beamtree.model.attention import Attention
from beamtree.tree.item_tree import ItemTree

Int32Array = NDArray[np.int32]


@dataclass
class PlainRetriever:
    """A model and its tree, with binary or wider branching and no vacant leaves."""

    model: Attention
    tree: ItemTree

    def history_vectors(self, histories: Int32Array, level: int) -> Tensor:
        """The history items as their ancestors on a level: (rows, positions, size)."""
        rows = self.tree.item_ancestors(histories, level) + self.tree.level_offsets[level]
        return self.model.node_table[torch.from_numpy(rows)]

    def node_vectors(self, nodes: Tensor, level: int) -> Tensor:
        """Vectors (..., size) of nodes (...) of a level."""
        return self.model.node_table[nodes + int(self.tree.level_offsets[level])]

    def scores(self, histories: Tensor, nodes: Tensor) -> Tensor:
        """Scores (rows, columns) of node vectors (rows, columns, size) for histories (rows, positions, size)."""
        model = self.model
        items, targets = torch.broadcast_tensors(histories.unsqueeze(1), nodes.unsqueeze(2))
        hidden = model.attention.hidden(torch.cat([items, items * targets, targets], dim=-1))
        hidden = functional.prelu(hidden, model.attention.hidden_slope)
        weights = functional.prelu(model.attention.output(hidden).squeeze(-1), model.attention.output_slope)
        weighted = weights.unsqueeze(-1) * histories.unsqueeze(1)
        windows = [window.sum(dim=2) for window in weighted.split(list(model.windows), dim=2)]
        y = torch.cat([*windows, nodes], dim=-1)
        for layer in range(3):
            y = functional.prelu(model.norm[layer](model.mlp.linear(layer)(y)), model.mlp.slopes[layer])
        return torch.as_tensor(model.mlp.linear(3)(y).squeeze(-1))

    @torch.no_grad()
    def beam_search(self, histories: Int32Array, *, beam: int, k: int) -> tuple[Tensor, Tensor]:
        """Leaves and scores (requests, k) of the best leaves, from the first level on."""
        nodes = torch.zeros(len(histories), 1, dtype=torch.int64)
        scores = torch.zeros(len(histories), 1)
        for level in range(1, self.tree.height + 1):
            nodes, is_node = self.children(nodes, level)
            scores = self.scores(self.history_vectors(histories, level), self.node_vectors(nodes, level))
            scores = scores.masked_fill(~is_node, -torch.inf)
            kept = min(k if level == self.tree.height else beam, nodes.shape[1])
            scores, best = scores.topk(kept, dim=1)
            nodes = nodes.gather(1, best)
        return nodes, scores

    def children(self, nodes: Tensor, level: int) -> tuple[Tensor, Tensor]:
        """Children on `level` of nodes (rows, n): (rows, n * branching), and which of them exist."""
        first, end = self.tree.child_ranges(nodes.numpy(), level - 1)
        children = torch.from_numpy(first[..., None] + np.arange(self.tree.branching))
        exists = children < torch.from_numpy(end[..., None])
        return torch.where(exists, children, children - 1).flatten(1), exists.flatten(1)

    def step_uniform(self, histories: Int32Array, targets: Int32Array, *, negatives: int) -> float:
        """DTR(U): leaves gradients in the parameters and returns the loss."""
        loss = 0.0
        for level in range(1, self.tree.height + 1):
            positives = torch.from_numpy(self.tree.item_ancestors(targets, level))
            size = int(self.tree.level_sizes[level])
            if size <= negatives + 1:
                loss += self._learn_level(histories, positives, self._others(positives, size), 0.0, level=level)
                continue
            drawn = torch.randint(size, (len(targets), negatives))
            is_negative = drawn != positives.unsqueeze(1)
            log_expected = (is_negative.sum(dim=1, keepdim=True) / (size - 1)).log()
            loss += self._learn_level(
                histories, positives, drawn, log_expected.expand(drawn.shape), level=level, is_negative=is_negative
            )
        return loss

    def step_top_down(self, histories: Int32Array, targets: Int32Array, *, negatives: int) -> float:
        """DTR(T), begun at the first level that is not taken whole: gradients as above, and the loss."""
        loss = 0.0
        paths = log_q = log_q_positive = None
        for level in range(1, self.tree.height + 1):
            positives = torch.from_numpy(self.tree.item_ancestors(targets, level))
            size = int(self.tree.level_sizes[level])
            if size <= negatives + 1:
                loss += self._learn_level(histories, positives, self._others(positives, size), 0.0, level=level)
                continue
            if paths is None or log_q is None or log_q_positive is None:
                paths, log_q, log_q_positive = self._start(histories, positives, level=level, negatives=negatives)
            else:
                paths, log_q, log_q_positive = self._descend(
                    histories, targets, paths, log_q, log_q_positive, level=level
                )
            is_negative = paths != positives.unsqueeze(1)
            effective = is_negative.sum(dim=1, keepdim=True).log()
            correction = effective + log_q - torch.log1p(-log_q_positive.exp()).unsqueeze(1)
            loss += self._learn_level(histories, positives, paths, correction, level=level, is_negative=is_negative)
        return loss

    @torch.no_grad()
    def _start(
        self, histories: Int32Array, positives: Tensor, *, level: int, negatives: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        everyone = torch.arange(int(self.tree.level_sizes[level])).expand(len(histories), -1)
        scores = self.scores(self.history_vectors(histories, level), self.node_vectors(everyone, level))
        log_q = scores.log_softmax(dim=1)
        paths = torch.multinomial(log_q.exp(), negatives, replacement=True)
        return paths, log_q.gather(1, paths), log_q.gather(1, positives.unsqueeze(1)).squeeze(1)

    @torch.no_grad()
    def _descend(
        self,
        histories: Int32Array,
        targets: Int32Array,
        paths: Tensor,
        log_q: Tensor,
        log_q_positive: Tensor,
        *,
        level: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One child for each path, by the softmax over its siblings; the positive's own path in the last column."""
        above = torch.from_numpy(self.tree.item_ancestors(targets, level - 1)).unsqueeze(1)
        positives = torch.from_numpy(self.tree.item_ancestors(targets, level)).unsqueeze(1)
        children, exists = self.children(torch.cat([paths, above], dim=1), level)
        scores = self.scores(self.history_vectors(histories, level), self.node_vectors(children, level))
        grouped = scores.masked_fill(~exists, -torch.inf).unflatten(1, (-1, self.tree.branching))
        log_share = grouped.log_softmax(dim=2)
        children = children.unflatten(1, (-1, self.tree.branching))
        chosen = torch.multinomial(log_share[:, :-1].exp().flatten(0, 1), 1).view(paths.shape).unsqueeze(2)
        share = log_share[:, :-1].gather(2, chosen).squeeze(2)
        own = log_share[:, -1].masked_fill(children[:, -1] != positives, -torch.inf).amax(dim=1)
        return children[:, :-1].gather(2, chosen).squeeze(2), log_q + share, log_q_positive + own

    def _others(self, positives: Tensor, size: int) -> Tensor:
        """All other nodes of a level: (rows, size - 1)."""
        everyone = torch.arange(size - 1).expand(len(positives), -1)
        return everyone + (everyone >= positives.unsqueeze(1))

    def _learn_level(
        self,
        histories: Int32Array,
        positives: Tensor,
        negatives: Tensor,
        correction: Tensor | float,
        *,
        level: int,
        is_negative: Tensor | None = None,
    ) -> float:
        nodes = torch.cat([positives.unsqueeze(1), negatives], dim=1)
        scores = self.scores(self.history_vectors(histories, level), self.node_vectors(nodes, level))
        drawn = scores[:, 1:] - correction
        if is_negative is not None:
            drawn = drawn.masked_fill(~is_negative, -torch.inf)
        corrected = torch.cat([scores[:, :1], drawn], dim=1)
        loss = (corrected.logsumexp(dim=1) - scores[:, 0]).mean() / self.tree.height
        loss.backward()
        return float(loss.detach())

    @torch.no_grad()
    def candidate_log_softmax(self, histories: Int32Array, candidates: Tensor, *, level: int) -> Tensor:
        """Log-softmax (instances, c) over the candidate nodes (instances, c) of a level."""
        scores = self.scores(self.history_vectors(histories, level), self.node_vectors(candidates, level))
        return scores.log_softmax(dim=1)
