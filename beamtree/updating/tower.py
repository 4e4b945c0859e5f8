"""The tower of an update: its encoder learns on, and subtrees that lead to their items less well are placed anew."""

from dataclasses import dataclass

import numpy as np

from beamtree.artefact import Artefact
from beamtree.config import Config
from beamtree.data.split import Split
from beamtree.fitting.run import FitRun, training_instances
from beamtree.fitting.tower import build_tower, training_expectations
from beamtree.model.next_item import NextItemModel
from beamtree.types import AnyArray, Float32Array, Float64Array, Int64Array
from beamtree.updating.encoder import Continuation, learn_on, saved_encoder
from beamtree.updating.rows import ExtendedLog
from beamtree.updating.subtrees import (
    NewTargets,
    PlacedVectors,
    fallen_subtrees,
    path_log_likelihoods,
    re_place,
    subtree_level,
    take_subtrees,
)

NODE_TABLE = "tower/node_table"


@dataclass(frozen=True, eq=False)
class FallenSubtrees:
    """Subtrees whose likelihood fell and rises again where their items are placed anew.

    placed: the tree and the tower's table with all of them placed anew; roots: on one level, of num_subtrees.
    mean_log_likelihoods: of the way to a new target below them, before the update, after it, and placed anew.
    """

    placed: PlacedVectors
    roots: Int64Array
    num_subtrees: int
    num_items: int
    mean_log_likelihoods: tuple[float, float, float]

    def __str__(self) -> str:
        before, after, anew = self.mean_log_likelihoods
        return (
            f"{len(self.roots):,} of {self.num_subtrees:,} subtrees, with {self.num_items:,} items, fell in likelihood "
            f"({before:.3f} to {after:.3f} per new row; placed anew {anew:.3f})"
        )


@dataclass(frozen=True, eq=False)
class LearnedTower:
    """The arrays of a tower that has learned on, named by part, the optimiser's, and subtrees to be placed anew."""

    arrays: dict[str, AnyArray]
    optimiser: dict[str, AnyArray]
    fallen: FallenSubtrees | None


def learn_tower(
    grown: Artefact,
    extended: ExtendedLog,
    split: Split,
    *,
    optimiser: dict[str, AnyArray],
    continuation: Continuation,
) -> LearnedTower:
    """Learn on from the tower of a model that has places for all items; its items stay where they are.

    fallen: None where no subtree fell, or none would gain by another placement.
    """
    config, dataset, tree = grown.config, extended.dataset, grown.tree
    encoder, seed = saved_encoder(grown), config.training.seed
    targets = NewTargets.sample(dataset, split, known_end=extended.known_end, tree=tree, seed=seed)
    before = _likelihoods(encoder, targets, PlacedVectors(tree, grown.weights[NODE_TABLE]))
    moments = learn_on(
        encoder,
        dataset,
        split,
        known_end=extended.known_end,
        optimiser=optimiser,
        config=config,
        continuation=continuation,
    )
    run = _run(extended, split, config=config, continuation=continuation)
    expectations = training_expectations(run, encoder.cpu())
    arrays = build_tower(run, encoder, tree, expectations=expectations)
    arrays["tower/weight"] = grown.weights["tower/weight"]
    placed = PlacedVectors(tree, arrays[NODE_TABLE])
    fallen = _fallen(run, encoder, targets, placed, before=before, expectations=expectations)
    return LearnedTower(arrays, moments, fallen)


def _fallen(
    run: FitRun,
    encoder: NextItemModel,
    targets: NewTargets,
    placed: PlacedVectors,
    *,
    before: Float64Array,
    expectations: Float32Array,
) -> FallenSubtrees | None:
    """Place fallen subtrees anew, and keep those that gain.

    before: log-likelihoods (targets,) before learning on; expectations: as for `re_place`.
    """
    tree, level = placed.tree, subtree_level(placed.tree)
    after = _likelihoods(encoder, targets, placed)
    roots = tree.item_ancestors(targets.items, level)
    fallen = fallen_subtrees(roots, before=before, after=after)
    if not len(fallen):
        return None
    on_step = run.stop_while("placing subtrees anew")
    on_step()
    candidate = re_place(placed, fallen.tolist(), level=level, expectations=expectations, seed=run.config.training.seed)
    anew = _likelihoods(encoder, targets, candidate)
    gain = np.bincount(roots, weights=anew - after)
    gained = fallen[gain[fallen] > 0.0]
    if not len(gained):
        return None
    is_concerned = np.isin(roots, gained)
    return FallenSubtrees(
        take_subtrees(placed, candidate, gained.tolist(), level=level),
        gained,
        num_subtrees=int(tree.level_sizes[level]),
        num_items=int(np.isin(tree.ancestors(tree.leaf_of_item, level), gained).sum()),
        mean_log_likelihoods=(
            float(before[is_concerned].mean()),
            float(after[is_concerned].mean()),
            float(anew[is_concerned].mean()),
        ),
    )


def _likelihoods(encoder: NextItemModel, targets: NewTargets, placed: PlacedVectors) -> Float64Array:
    expectations = encoder.expectations_of(targets.requests)
    return path_log_likelihoods(placed, expectations, targets.items, level=subtree_level(placed.tree))


def _run(extended: ExtendedLog, split: Split, *, config: Config, continuation: Continuation) -> FitRun:
    """The update as the stages of a fit know it."""
    dataset = extended.dataset
    instances = training_instances(dataset, split, config=config)
    return FitRun(dataset, split, config, None, continuation.listen, continuation.should_stop, instances)
