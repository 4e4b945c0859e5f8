"""Other rectified labels: the laxer test of the published code, normalised ones (Eq. 15), and soft ones."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from beamtree.model.estimator import Estimator, scores_of
from beamtree.training.instances import TrainingInstances
from beamtree.training.labelled import LabelRule, RectifiedInstances
from beamtree.training.labels import given
from beamtree.training.rectify import first_winning_level, labels_from, scores_by_leaf
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array, Int32Array, Int64Array
from research.soft_labels import SoftInstances


@dataclass(frozen=True)
class ChildLabels:
    """A target counts on a level where, among the children of its ancestor there, that on its path is the best."""

    name: ClassVar[str] = "rectified by child"
    needs_estimator: ClassVar[bool] = True

    def label(self, instances: TrainingInstances, *, tree: ItemTree, estimator: Estimator | None) -> RectifiedInstances:
        """As in `Labels`."""
        rule = _rule(winning_child_levels, given(estimator), tree, weights=partial(labels_of_mask, height=tree.height))
        return RectifiedInstances(instances, rule=rule, tree=tree)


@dataclass(frozen=True)
class NormalisedLabels:
    """The labels of the product, divided by what those of their level are expected to sum up to."""

    name: ClassVar[str] = "rectified, normalised"
    needs_estimator: ClassVar[bool] = True

    def label(self, instances: TrainingInstances, *, tree: ItemTree, estimator: Estimator | None) -> RectifiedInstances:
        """As in `Labels`."""
        rule = _rule(normalised_labels, given(estimator), tree, weights=lambda labels: labels)
        return RectifiedInstances(instances, rule=rule, tree=tree)


@dataclass(frozen=True)
class SoftLabels:
    """The estimator's `items` likeliest items are targets too; they share `share` of the loss."""

    items: int = 10
    share: float = 0.5
    needs_estimator: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """As in `Labels`."""
        return f"soft, {self.items} items, share {self.share:g}"

    def label(self, instances: TrainingInstances, *, tree: ItemTree, estimator: Estimator | None) -> SoftInstances:
        """As in `Labels`."""
        return SoftInstances(instances, estimator=given(estimator), tree=tree, items=self.items, share=self.share)


def _rule(
    labels_of: Callable[..., AnyArray],
    estimator: Estimator,
    tree: ItemTree,
    *,
    weights: Callable[[AnyArray], Float32Array],
) -> LabelRule:
    """From the scores of all leaves to labels."""
    return LabelRule(
        lambda requests: partial(labels_of, scores_by_leaf(scores_of(estimator, requests), tree), tree=tree), weights
    )


def winning_child_levels(leaf_scores: Float32Array, target_leaves: Int64Array, *, tree: ItemTree) -> Int32Array:
    """The laxer test of the published code, as a bit mask (instances,): bit j - 1 stands for level j.

    A level counts when, among the children of the target's ancestor there, none has a better best leaf than the child
    on the target's path. This does not nest. The leaf level always counts.
    """
    rows = np.arange(len(target_leaves))
    best_below = leaf_scores
    mask = np.full(len(target_leaves), 1 << (tree.height - 1), dtype=np.int32)
    for level in range(tree.height - 1, 0, -1):
        first, _ = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
        best_of_node = np.maximum.reduceat(best_below, first, axis=1)
        on_path = best_below[rows, tree.ancestors(target_leaves, level + 1)]
        wins = on_path >= best_of_node[rows, tree.ancestors(target_leaves, level)]
        mask[wins] |= 1 << (level - 1)
        best_below = best_of_node
    return mask


def normalised_labels(leaf_scores: Float32Array, target_leaves: Int64Array, *, tree: ItemTree) -> Float32Array:
    """The labels of the subtree test divided by what they sum up to in expectation on their level (Eq. 15).

    The rectified label of a node is expected to be the highest probability below it. Divided by the sum of these over
    the level's nodes, the expected labels of a level add up to 1. leaf_scores are logits: probabilities are their
    softmax. (instances, height); at the leaves always 1.
    """
    best_below = np.exp(leaf_scores - leaf_scores.max(axis=1, keepdims=True))
    every_leaf = best_below.sum(axis=1)
    labels = labels_from(first_winning_level(leaf_scores, target_leaves, tree=tree), height=tree.height)
    for level in range(tree.height - 1, 0, -1):
        first, _ = tree.child_ranges(np.arange(tree.level_sizes[level]), level)
        best_below = np.maximum.reduceat(best_below, first, axis=1)
        labels[:, level - 1] *= every_leaf / best_below.sum(axis=1)
    return labels


def labels_of_mask(mask: AnyArray, *, height: int) -> Float32Array:
    """The label of each level for each instance, (instances, height), from a bit mask (instances,)."""
    return ((mask[:, None] >> np.arange(height)) & 1).astype(np.float32)
