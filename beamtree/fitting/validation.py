"""Validation during training: metrics of the recommendations to a sample of the validation users."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from beamtree import native
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import HeldOut
from beamtree.evaluation.answers import Answers, BeamSearch, ExactScan, scored_by
from beamtree.evaluation.protocol import evaluate
from beamtree.model.estimator import Estimator
from beamtree.model.score import Score, attention_alone
from beamtree.model.torch_scorer import TorchScorer
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.scorer import Scorer
from beamtree.training.randomness import numpy_generator
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray

CUTOFFS = (20,)

MAX_SCANNED_ITEMS = 20_000
"""Up to this number of items, validation scans all of them instead of letting a tower guide the beam."""

MakeTower = Callable[[], Mapping[str, AnyArray]]
"""Gives the arrays of a tower over the tree of a score, named by part."""


class LazyTower:
    """A tower that is built on first use, and before it is pickled for another process."""

    def __init__(self, make: MakeTower) -> None:
        self._make = make
        self._made: Mapping[str, AnyArray] | None = None

    def __call__(self) -> Mapping[str, AnyArray]:
        """The arrays of the tower."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return {"_made": self()}


def sample_users(users: HeldOut, *, config: Config, seed: int, times: int = 1) -> HeldOut:
    """At most `times` * `training.schedule.validation_users` of the users, in their order."""
    generator = numpy_generator(seed, "validation")
    return users.take(np.sort(generator.permutation(len(users))[: times * config.training.schedule.validation_users]))


def model_validation(
    score: Score, dataset: Dataset, users: HeldOut, *, config: Config, tower: MakeTower | None = None
) -> Callable[[], Mapping[str, float]] | None:
    """A function that computes the metrics of a score on these users with its present weights; None without users.

    If no part guides the beam down to the first scored level, all leaves are scored, or, in catalogues above
    `MAX_SCANNED_ITEMS`, the tower is added to the score if there is one.
    """
    if len(users) == 0:
        return None

    def validate() -> Mapping[str, float]:
        search = _search_of(score, config=config, tower=tower)
        return evaluate(search, dataset, users, config=config, cutoffs=CUTOFFS)

    return validate


def _search_of(score: Score, *, config: Config, tower: MakeTower | None) -> Answers:
    beam_width = config.retrieval.beam_width
    first_level = min(1 if part.levels is None else part.levels.start for part in score.parts.values())
    if reaches_level(first_level, score.tree, beam_width=beam_width):
        scorer = _scorer_of(score, config=config)
    elif tower is not None and score.tree.num_items > MAX_SCANNED_ITEMS:
        scorer = build_scorer({**score.arrays(), **tower()}, score.tree, config=config)
    else:
        return ExactScan(Engine(_scorer_of(score, config=config), score.tree))
    return BeamSearch(Engine(scorer, score.tree), beam_width)


def _scorer_of(score: Score, *, config: Config) -> Scorer:
    """The score as it is now: in the kernels where they know it, else in torch."""
    if attention_alone(score) is None or not native.is_available():
        return TorchScorer(score)
    return build_scorer(score.arrays(), score.tree, config=config)


def reaches_level(first_level: int, tree: ItemTree, *, beam_width: int) -> bool:
    """Whether the beam keeps all nodes above the first scored level."""
    return bool(tree.level_sizes[max(first_level - 1, 0)] <= beam_width)


def estimator_validation(
    dataset: Dataset, users: HeldOut, *, config: Config
) -> Callable[[Estimator], Mapping[str, float]] | None:
    """A function that computes the metrics of an estimator on these users by an exact scan; None without users."""
    if len(users) == 0:
        return None

    def validate(estimator: Estimator) -> Mapping[str, float]:
        search = scored_by(estimator, num_items=len(dataset.items))
        return evaluate(search, dataset, users, config=config, cutoffs=CUTOFFS)

    return validate
