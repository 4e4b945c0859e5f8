"""JTR's score: inner products of a history's encoding with the nodes of a tree of buckets, then with the items."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from beamtree.baselines.trees.bucket_tree import BucketTree
from beamtree.baselines.trees.node_loss import numpy_stream
from beamtree.model.next_item import NextItemModel
from beamtree.training.instances import Batch, one_target_each
from beamtree.types import NOTHING, Float32Array, Int32Array, Int64Array


class JtrModel(nn.Module):
    """The encoder with its items, and a vector for each node, level by level: tables (nodes, width)."""

    def __init__(self, encoder: NextItemModel, centres: list[Float32Array]) -> None:
        super().__init__()
        self.encoder = encoder
        self.levels = nn.ParameterList(torch.from_numpy(of_level.copy()) for of_level in centres)

    def queries(self, histories: Int32Array) -> Tensor:
        """Encodings (histories, width) of histories (histories, positions), padded in front with -1."""
        rows = torch.from_numpy(histories.astype(np.int64))
        vectors = embedding(rows.clamp(min=0), self.encoder.items)
        return self.encoder.encoder.expectation(vectors, present=rows >= 0)

    def level_vectors(self) -> list[Float32Array]:
        """The nodes' vectors as arrays that share memory."""
        return [level.detach().numpy() for level in self.levels]


class LevelwiseLoss:
    """The mean over levels of the cross-entropy of the target's node against others, the items of its bucket last.

    negatives: on each level, siblings of the positive first, then nodes drawn uniformly; smaller levels are taken
    whole. An item of two buckets is learned in the first.
    """

    def __init__(self, tree: BucketTree, *, negatives: int) -> None:
        self._tree = tree
        self._negatives = negatives

    def __call__(self, model: JtrModel, batch: Batch, generator: torch.Generator) -> Tensor:
        """Of a batch, each target with its own negatives."""
        tree, stream = self._tree, numpy_stream(generator)
        single = one_target_each(batch, height=1)
        targets = single.targets[:, 0]
        queries = model.queries(single.histories.latest(model.encoder.history_length))
        leaf = tree.leaves_of_item[targets, 0]
        losses = [
            contrast(
                queries,
                model.levels[level - 1],
                level_candidates(tree, tree.paths[level - 1, leaf], level, negatives=self._negatives, generator=stream),
            )
            for level in range(1, tree.height + 1)
        ]
        losses.append(contrast(queries, model.encoder.items, bucket_candidates(tree, targets)))
        return torch.stack(losses).mean()


def level_candidates(
    tree: BucketTree, positives: Int64Array, level: int, *, negatives: int, generator: np.random.Generator
) -> Int64Array:
    """Nodes of a level that compete for each instance, the positive (instances,) in column 0, -1 for none."""
    size = tree.size(level)
    if size <= negatives + 1:
        others = np.broadcast_to(np.arange(size), (len(positives), size))
    else:
        first = tree.first_child[level - 1]
        parent = np.searchsorted(first, positives, side="right") - 1
        siblings = first[parent][:, None] + np.arange(min(negatives, int(np.diff(first).max())))
        siblings = np.where(siblings < first[parent + 1][:, None], siblings, NOTHING)
        drawn = generator.integers(size, size=(len(positives), negatives - siblings.shape[1]))
        is_sibling = (drawn >= first[parent][:, None]) & (drawn < first[parent + 1][:, None])
        others = np.concatenate([siblings, np.where(is_sibling, NOTHING, drawn)], axis=1)
    return np.concatenate([positives[:, None], np.where(others == positives[:, None], NOTHING, others)], axis=1)


def bucket_candidates(tree: BucketTree, targets: Int32Array) -> Int64Array:
    """The items of each target's first bucket, the target in column 0, -1 for none."""
    items = tree.buckets[tree.leaves_of_item[targets, 0]].astype(np.int64)
    others = np.where(items == targets[:, None], NOTHING, items)
    return np.concatenate([targets[:, None].astype(np.int64), others], axis=1)


def contrast(queries: Tensor, table: Tensor, candidates: Int64Array) -> Tensor:
    """Mean cross-entropy of column 0 against the others, by inner products of queries with rows of a table."""
    rows = torch.from_numpy(candidates)
    scores = torch.einsum("rd,rcd->rc", queries, embedding(rows.clamp(min=0), table)).masked_fill(rows < 0, -torch.inf)
    return (scores.logsumexp(dim=1) - scores[:, 0]).mean()
