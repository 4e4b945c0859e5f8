"""What distinguishes tree systems: loss, search score, and reassignment of the items."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from beamtree.baselines.trees.run import TreeRun
from beamtree.config import Config
from beamtree.model.score import Score
from beamtree.retrieval.scorers import build_scorer
from beamtree.scorer import Scorer
from beamtree.training.instances import TrainingInstances
from beamtree.training.learner import Learner
from beamtree.training.placement import TransferRows, keep_rows
from beamtree.training.rounds import Rounds
from beamtree.training.trainer import Instances
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray

MakeScorer = Callable[[Mapping[str, AnyArray], ItemTree, Config], Scorer]
"""Makes the scorer of the beam from the arrays of a score, its tree and the settings."""


@dataclass(frozen=True)
class Replanting:
    """Between two rounds: the score that was learned, over its tree, and what a new tree may cost.

    instances_per_item: training instances to read for each item, at most. on_step: called often; raises when there is
    no time left or the fit is asked to stop.
    """

    run: TreeRun
    score: Score
    rounds: Rounds
    instances_per_item: int
    on_step: Callable[[], None]


Replant = Callable[[Replanting], ItemTree]
"""Reassigns the items."""


def search_by_the_score(weights: Mapping[str, AnyArray], tree: ItemTree, config: Config) -> Scorer:
    """The score itself guides the beam."""
    return build_scorer(weights, tree, config=config)


def _plain(instances: TrainingInstances, _tree: ItemTree) -> Instances:
    return instances


@dataclass(frozen=True)
class Method:
    """A tree system as the common loop needs it.

    make_learner: for a fresh score, under settings with the round's seed. make_scorer: by default the score
    itself guides the beam. label: adds labels over a tree to the instances. replant: None keeps the tree. max_rounds:
    as published. transfer: the initial node embeddings in a new tree.
    """

    make_learner: Callable[[Score, Config], Learner]
    make_scorer: MakeScorer = search_by_the_score
    label: Callable[[TrainingInstances, ItemTree], Instances] = _plain
    replant: Replant | None = None
    max_rounds: int = 1
    transfer: TransferRows = keep_rows
