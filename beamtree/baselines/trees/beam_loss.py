"""OTM's loss: binary cross-entropy on the candidates of the model's own beam, with labels corrected from the leaves up.

A target's leaf has label 1. A parent's label is the sum of its children's labels, as far as these children score at
least as high as all of their siblings, and at most 1: a parent is worth keeping only where its best child is a target.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from beamtree.baselines.trees.node_loss import children_of, distinct
from beamtree.baselines.trees.node_scores import NodeScores, PrepareNodes
from beamtree.model.score import Score
from beamtree.retrieval.beam import first_searched_level
from beamtree.training.instances import Batch
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, BoolArray, Float32Array, Int32Array, Int64Array

ScoreRows = Callable[[Sequence[int], Int64Array], Float32Array]
"""Scores (levels, instances, columns) of nodes numbered over the whole tree, -inf where there is none."""


@dataclass(frozen=True, eq=False)
class PseudoTargets:
    """On one level: the distinct ancestors of the targets (instances, targets), -1 for none, and their labels."""

    nodes: Int64Array
    labels: Float32Array

    def of(self, candidates: Int64Array) -> Float32Array:
        """Labels (instances, candidates) of nodes of the level; 0 for all that are not above a target."""
        is_same = (candidates[:, :, None] == self.nodes[:, None]) & (candidates != NOTHING)[:, :, None]
        return np.asarray((is_same * self.labels[:, None]).sum(axis=2), dtype=np.float32)


def pseudo_targets(
    tree: ItemTree, targets: Int32Array, score_rows: ScoreRows, *, first_level: int
) -> dict[int, PseudoTargets]:
    """By level, from the first that is searched to the leaves, for targets (instances, targets), -1 for none.

    Only the targets' ancestors and their siblings are scored.
    """
    levels = range(first_level + 1, tree.height + 1)
    ancestors = {level: distinct(tree.item_ancestors(targets, level)) for level in range(first_level, tree.height + 1)}
    found = {tree.height: PseudoTargets(ancestors[tree.height], (ancestors[tree.height] != NOTHING).astype(np.float32))}
    if not levels:
        return found
    parents = {level: _parents(tree, ancestors[level], level) for level in levels}
    families = {level: _occupied_children(tree, parents[level], level - 1) for level in levels}
    numbered = [
        np.where(families[level] != NOTHING, families[level] + tree.level_offsets[level], NOTHING) for level in levels
    ]
    scores = score_rows(levels, np.stack(numbered).reshape(len(levels), len(targets), -1))
    for level in reversed(levels):
        family_scores = scores[level - first_level - 1].reshape(families[level].shape)
        is_itself = families[level] == ancestors[level][:, :, None]
        own = np.where(is_itself, family_scores, -np.inf).max(axis=2)
        is_winner: BoolArray = own >= family_scores.max(axis=2)
        passed_on = np.where(is_winner & (ancestors[level] != NOTHING), found[level].labels, 0.0)
        above = ancestors[level - 1]
        is_child = (parents[level][:, None] == above[:, :, None]) & (above != NOTHING)[:, :, None]
        labels = (is_child * passed_on[:, None]).sum(axis=2).clip(0.0, 1.0)
        found[level - 1] = PseudoTargets(above, labels.astype(np.float32))
    return found


@dataclass(frozen=True)
class BeamLoss:
    """The mean cross-entropy over all candidates that a beam meets, on all levels that it searches.

    prepare: from a score, requests and dropout to scores of nodes.
    """

    tree: ItemTree
    beam_width: int
    prepare: PrepareNodes = NodeScores

    def __call__(self, score: Score, batch: Batch, generator: torch.Generator) -> Tensor:
        """As `NodeLoss`. One forward pass serves the beam and the loss; the labels are scored without dropout."""
        tree = self.tree
        score_nodes = self.prepare(score, batch.requests, dropout=generator if score.training else None)
        as_in_use = self.prepare(score, batch.requests, dropout=None)

        @torch.no_grad()
        def score_rows(levels: Sequence[int], rows: Int64Array) -> Float32Array:
            return np.asarray(as_in_use(levels, torch.from_numpy(rows)).numpy())

        level = first_searched_level(tree, beam_width=self.beam_width)
        targets = pseudo_targets(tree, batch.targets, score_rows, first_level=level)
        candidates = np.tile(np.flatnonzero(tree.occupied(level)), (len(batch), 1))
        losses, count = [], 0
        while True:
            is_candidate = candidates != NOTHING
            rows = np.where(is_candidate, candidates + tree.level_offsets[level], NOTHING)
            scores = score_nodes([level], torch.from_numpy(rows)[None])[0]
            present = torch.from_numpy(is_candidate)
            labels = torch.from_numpy(targets[level].of(candidates))[present]
            losses.append(binary_cross_entropy_with_logits(scores[present], labels, reduction="sum"))
            count += len(labels)
            if level == tree.height:
                return torch.stack(losses).sum() / count
            best = scores.detach().topk(min(self.beam_width, scores.shape[1]), dim=1).indices.numpy()
            kept = np.take_along_axis(candidates, best, axis=1)
            candidates = _occupied_children(tree, kept, level).reshape(len(batch), -1)
            level += 1


def _parents(tree: ItemTree, nodes: Int64Array, level: int) -> Int64Array:
    """Parents (...) of nodes (...) of a level; -1 stays -1."""
    first_leaf, _ = tree.leaf_ranges(np.maximum(nodes, 0), level)
    return np.where(nodes != NOTHING, tree.ancestors(first_leaf, level - 1), NOTHING)


def _occupied_children(tree: ItemTree, nodes: Int64Array, level: int) -> Int64Array:
    """Children (..., branching) of nodes of a level that have an item below; -1 elsewhere."""
    children = children_of(tree, nodes, level)
    return np.where(tree.occupied(level + 1)[children] & (children != NOTHING), children, NOTHING)
