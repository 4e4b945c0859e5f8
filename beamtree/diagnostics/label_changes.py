"""Rectified labels that change under perturbed probabilities (the paper's appendix).

Every probability is shifted by Gaussian noise N(0, 1) clipped to [-L, L], values below 0 become 0, and each row is
renormalised. Since L is far below 1, nearly every shift is +L or -L. A label is one (target, level).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from beamtree.diagnostics.averages import Average, average_over_histories
from beamtree.diagnostics.held_out import SampledUsers
from beamtree.model.estimator import Estimator
from beamtree.training.rectify import first_winning_level, labels_from, scores_by_leaf
from beamtree.tree.item_tree import ItemTree
from beamtree.types import BoolArray, Float32Array, Float64Array, Int32Array, Int64Array

THRESHOLDS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
PROBABILITIES_AT_A_TIME = 2**22

MAX_PROBABILITIES = 2**27
"""Probabilities that are perturbed in all, for each threshold; on larger catalogues fewer targets are asked for."""


@dataclass(frozen=True)
class LabelChange:
    """One threshold: the share of labels that flip, and how many flip per target (g of Lemma 4)."""

    threshold: float
    changed: Average
    changed_per_target: Average
    by_level: tuple[float, ...]


@dataclass(frozen=True)
class LabelChanges:
    """All thresholds, and how much there is to perturb.

    positive: share of positive labels on levels 1 to height before any change; median_target_probability: what the
    estimator gives the targets; mean_probability: 1 / items.
    """

    estimator: str
    targets: int
    positive: tuple[float, ...]
    median_target_probability: float
    mean_probability: float
    changes: tuple[LabelChange, ...]


def measure_label_changes(
    estimator: Estimator,
    asked: SampledUsers,
    *,
    name: str,
    tree: ItemTree,
    seed: int,
    thresholds: Sequence[float] = THRESHOLDS,
    advance: Callable[[int], None] = lambda _: None,
) -> LabelChanges:
    """Labels of the held-out targets from the estimator's probabilities as they are, and perturbed."""
    every = -(-len(asked) * tree.num_items // MAX_PROBABILITIES)
    histories, targets = asked.histories(estimator.history_length)[::every], asked.targets[::every]
    user_row = asked.user_row[::every]
    flips = np.empty((len(thresholds), len(targets), tree.height), dtype=np.bool_)
    labels = np.empty((len(targets), tree.height), dtype=np.bool_)
    of_targets = np.empty(len(targets))
    block = max(1, PROBABILITIES_AT_A_TIME // tree.num_items)
    generator = np.random.default_rng(seed)
    for first in range(0, len(targets), block):
        rows = slice(first, first + block)
        probabilities = softmax(estimator.scores(histories[rows]))
        labels[rows] = rectified_labels(probabilities, targets[rows], tree=tree)
        of_targets[rows] = np.take_along_axis(probabilities, targets[rows, None], axis=1)[:, 0]
        for place, threshold in enumerate(thresholds):
            perturbed = perturb(probabilities, threshold=threshold, generator=generator)
            again = rectified_labels(perturbed, targets[rows], tree=tree)
            flips[place, rows] = again != labels[rows]
        advance(len(probabilities))
    return LabelChanges(
        estimator=name,
        targets=len(targets),
        positive=tuple(labels.mean(axis=0).tolist()),
        median_target_probability=float(np.median(of_targets)),
        mean_probability=1.0 / tree.num_items,
        changes=tuple(
            _summarise(threshold, flipped, user_row) for threshold, flipped in zip(thresholds, flips, strict=True)
        ),
    )


def softmax(scores: Float32Array) -> Float64Array:
    """Probabilities (rows, items) of scores."""
    shifted = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def perturb(probabilities: Float64Array, *, threshold: float, generator: np.random.Generator) -> Float64Array:
    """Probabilities (rows, items), each nonzero one shifted by clipped noise, normalised per row."""
    noise = np.clip(generator.standard_normal(probabilities.shape), -threshold, threshold)
    shifted = np.maximum(np.where(probabilities > 0, probabilities + noise, 0.0), 0.0)
    totals = shifted.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(shifted, totals, out=shifted, where=totals > 0))


def rectified_labels(probabilities: Float64Array, targets: Int32Array, *, tree: ItemTree) -> BoolArray:
    """The label of each target's ancestor on levels 1 to height: (targets, height)."""
    by_leaf = scores_by_leaf(probabilities.astype(np.float32), tree)
    levels = first_winning_level(by_leaf, tree.leaf_of_item[targets].astype(np.int64), tree=tree)
    return labels_from(levels, height=tree.height) > 0


def _summarise(threshold: float, flipped: BoolArray, user_row: Int64Array) -> LabelChange:
    changed = average_over_histories(flipped.mean(axis=1), user_row)
    per_target = average_over_histories(flipped.sum(axis=1).astype(np.float64), user_row)
    assert changed is not None
    assert per_target is not None
    return LabelChange(threshold, changed, per_target, tuple(flipped.mean(axis=0).tolist()))
