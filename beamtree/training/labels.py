"""How much a target counts on each level: everywhere alike, or as an estimator rectifies it (Eq. 13)."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from beamtree.errors import InputError
from beamtree.model.estimator import Estimator, InnerProductEstimator, expectations_of, scores_of
from beamtree.training.instances import TrainingInstances
from beamtree.training.labelled import LabelRule, RectifiedInstances
from beamtree.training.rectify import first_winning_level, labels_from, scores_by_leaf
from beamtree.training.trainer import Instances
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, Float32Array, Float64Array, Int8Array, Int64Array


class Labels(Protocol):
    """A choice that holds for every tree and every round of a fit."""

    @property
    def name(self) -> str:
        """What checkpoints call it, options included: one with another name is not resumed."""

    @property
    def needs_estimator(self) -> bool:
        """Whether an estimator is asked what follows each history."""

    def label(self, instances: TrainingInstances, *, tree: ItemTree, estimator: Estimator | None) -> Instances:
        """The instances as they are learned from over a tree; InputError without an estimator that is needed."""


@runtime_checkable
class LabelledInstances(Instances, Protocol):
    """Instances whose labels can be reported on."""

    @property
    def seconds(self) -> float:
        """What the labels took so far, over all starts of the run."""

    def mean_labels(self) -> Float64Array:
        """The mean label of each level, 1 to height, so far."""


@dataclass(frozen=True)
class PlainLabels:
    """Every target counts on all levels."""

    name: ClassVar[str] = "plain"
    needs_estimator: ClassVar[bool] = False

    def label(self, instances: TrainingInstances, *, tree: ItemTree, estimator: Estimator | None) -> Instances:
        """The instances as they are."""
        del tree, estimator
        return instances


@dataclass(frozen=True)
class RectifiedLabels:
    """DTR(T-RL): a target counts on a level where no item below its ancestor has a higher estimated probability."""

    name: ClassVar[str] = "rectified"
    needs_estimator: ClassVar[bool] = True

    def label(self, instances: TrainingInstances, *, tree: ItemTree, estimator: Estimator | None) -> RectifiedInstances:
        """As in `Labels`."""
        return RectifiedInstances(instances, rule=subtree_rule(given(estimator), tree), tree=tree)


def given(estimator: Estimator | None) -> Estimator:
    """The estimator of rectified labels; InputError if there is none."""
    if estimator is None:
        raise InputError("Expected an estimator, which rectified labels ask, got none. Give one, or take plain labels.")
    return estimator


def subtree_rule(estimator: Estimator, tree: ItemTree) -> LabelRule:
    """A target counts from the first level on at which it is the likeliest of its whole subtree."""
    weights = partial(labels_from, height=tree.height)
    if isinstance(estimator, InnerProductEstimator):
        leaf_vectors = vectors_by_leaf(estimator.item_vectors(), tree)
        return LabelRule(
            lambda requests: partial(climb, expectations_of(estimator, requests), leaf_vectors, tree=tree), weights
        )
    return LabelRule(
        lambda requests: partial(first_winning_level, scores_by_leaf(scores_of(estimator, requests), tree), tree=tree),
        weights,
    )


LEAVES_AT_A_TIME = 1024


def vectors_by_leaf(item_vectors: Float32Array, tree: ItemTree) -> Float32Array:
    """Vectors (items, width) in the order of the leaves; a vacant leaf gets NaN, which is never better."""
    by_leaf = item_vectors[tree.item_at_leaf]
    by_leaf[tree.item_at_leaf == NOTHING] = np.nan
    return by_leaf


def climb(
    expected: Float32Array, leaf_vectors: Float32Array, target_leaves: Int64Array, *, tree: ItemTree
) -> Int8Array:
    """The first level on which a target wins its subtree, climbing from its leaf until a better one is met.

    1 to height for each target (instances,); expected: (instances, width), what each history makes likely. A few inner
    products usually decide: most targets meet a better leaf nearby, and what lies beyond is never scored. The result is
    that of `first_winning_level` on the scores of all leaves, but for scores that only rounding tells apart.
    """
    levels = np.arange(1, tree.height)
    first, end = tree.leaf_ranges(tree.ancestors(target_leaves[:, None], levels), levels)
    winning = np.full(len(target_leaves), tree.height, dtype=np.int8)
    for row, (leaf, vector) in enumerate(zip(target_leaves, expected, strict=True)):
        own, left, right = leaf_vectors[leaf] @ vector, leaf, leaf + 1
        for level in levels[::-1]:
            outer_left, outer_right = first[row, level - 1], end[row, level - 1]
            if _has_better(leaf_vectors[outer_left:left], vector, own):
                break
            if _has_better(leaf_vectors[right:outer_right], vector, own):
                break
            winning[row], left, right = level, outer_left, outer_right
    return winning


def _has_better(leaf_vectors: Float32Array, vector: Float32Array, own: np.float32) -> bool:
    """Whether any of the leaves is better, in blocks, since one is enough."""
    blocks = range(0, len(leaf_vectors), LEAVES_AT_A_TIME)
    return any((leaf_vectors[first : first + LEAVES_AT_A_TIME] @ vector > own).any() for first in blocks)
