"""How many rectified labels change where probabilities are a little wrong (the paper's appendix on perturbing them).

The probability of an item for a user is its share of the user's interactions. Every probability is shifted by Gaussian
noise N(0, 1) clipped to [-L, L], values below 0 become 0, and each user's are normalised anew. A label is that of a
user, an item the user had, and a level: 1 where the item is the likeliest below its ancestor there. The tree is one
that DTR(T) learned.

Open in the paper: which of several equally likely items wins (the leftmost leaf), how a count becomes a probability
(per user), and which labels are counted (those of all items that a user had, on all levels). Most people had most items
once, so that nearly all probabilities are ties, which the smallest noise breaks: that is where the labels change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.baselines.trees.dtr import Dtr
from beamtree.baselines.trees.recipe import PUBLISHED, Recipe
from beamtree.data.dataset import Dataset
from beamtree.data.sequences import Sequences
from beamtree.data.split import Split
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float64Array, Int64Array

THRESHOLDS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
Labels = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Preferences:
    """What each user had: users and leaves (entries,), sorted by both; probabilities (entries,), 1 in all per user."""

    users: Int64Array
    leaves: Int64Array
    probabilities: Float64Array


@dataclass
class PerturbedDtr:
    """DTR(T) as published; beside its answers, the share of labels that change at each threshold."""

    name: str = "dtr-t-perturbed"
    recipe: Recipe = PUBLISHED

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        fitted = Dtr("dtr-t", self.recipe).fit(dataset, split, budget=budget)
        preferences = count_preferences(dataset.sequences, fitted.engine.tree)
        generator = np.random.default_rng(budget.seed)
        changed = label_changes(preferences, fitted.engine.tree, thresholds=THRESHOLDS, generator=generator)
        findings = {"labels": len(preferences.users) * fitted.engine.tree.height, "changed": changed}
        return replace(fitted, findings=findings)


def count_preferences(sequences: Sequences, tree: ItemTree) -> Preferences:
    """The share that each item has of its user's interactions."""
    users = np.repeat(np.arange(len(sequences)), sequences.lengths)
    pairs = users * tree.num_leaves + tree.leaf_of_item[sequences.items]
    distinct, counts = np.unique(pairs, return_counts=True)
    owners = distinct // tree.num_leaves
    totals = np.bincount(owners, weights=counts, minlength=len(sequences))
    return Preferences(owners, distinct % tree.num_leaves, counts / totals[owners])


def label_changes(
    preferences: Preferences, tree: ItemTree, *, thresholds: Sequence[float], generator: np.random.Generator
) -> list[float]:
    """The share of labels that differ from the unperturbed ones, for each threshold."""
    before = labels_of(preferences.probabilities, preferences, tree)
    changed = []
    for threshold in thresholds:
        noise = np.clip(generator.standard_normal(len(preferences.users)), -threshold, threshold)
        shifted = np.maximum(preferences.probabilities + noise, 0.0)
        totals = np.bincount(preferences.users, weights=shifted)[preferences.users]
        perturbed = np.divide(shifted, totals, out=np.zeros_like(shifted), where=totals > 0)
        changed.append(float((labels_of(perturbed, preferences, tree) != before).mean()))
    return changed


def labels_of(probabilities: Float64Array, preferences: Preferences, tree: ItemTree) -> Labels:
    """Whether each entry is the likeliest of its user's below its ancestor: (levels 1 to height, entries)."""
    return np.stack(
        [_winners(probabilities, preferences, tree.ancestors(preferences.leaves, level)) for level in _levels(tree)]
    )


def _levels(tree: ItemTree) -> range:
    return range(1, tree.height + 1)


def _winners(probabilities: Float64Array, preferences: Preferences, nodes: Int64Array) -> Labels:
    """The first of the likeliest entries of each user and node, which are next to each other."""
    is_first = np.ones(len(nodes), dtype=np.bool_)
    is_first[1:] = (nodes[1:] != nodes[:-1]) | (preferences.users[1:] != preferences.users[:-1])
    groups, starts = np.cumsum(is_first) - 1, np.flatnonzero(is_first)
    highest = np.flatnonzero(probabilities == np.maximum.reduceat(probabilities, starts)[groups])
    _, first = np.unique(groups[highest], return_index=True)
    wins = np.zeros(len(nodes), dtype=np.bool_)
    wins[highest[first]] = True
    return wins
