"""How models are compared while they learn: by what they recommend to a sample of the validation users."""

from collections.abc import Callable, Mapping

import numpy as np

from beamtree import native
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import HeldOut
from beamtree.evaluation.answers import BeamSearch, scored_by
from beamtree.evaluation.protocol import evaluate
from beamtree.model.estimator import Estimator
from beamtree.model.score import Score, attention_alone
from beamtree.model.torch_scorer import TorchScorer
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.scorer import Scorer
from beamtree.training.randomness import numpy_generator

CUTOFFS = (20,)


def sample_users(users: HeldOut, *, config: Config, seed: int) -> HeldOut:
    """At most `training.validation_users` of the users, in their order."""
    generator = numpy_generator(seed, "validation")
    return users.take(np.sort(generator.permutation(len(users))[: config.training.validation_users]))


def model_validation(
    score: Score, dataset: Dataset, users: HeldOut, *, config: Config
) -> Callable[[], Mapping[str, float]] | None:
    """The metrics of a score, whenever it is asked, that searches its tree for these users; None without users."""
    if len(users) == 0:
        return None

    def validate() -> Mapping[str, float]:
        search = BeamSearch(Engine(_scorer_of(score, config=config), score.tree), config.retrieval.beam_width)
        return evaluate(search, dataset, users, config=config, cutoffs=CUTOFFS)

    return validate


def _scorer_of(score: Score, *, config: Config) -> Scorer:
    """The score as it is now: in the kernels where they know it, else in torch."""
    if attention_alone(score) is None or not native.is_available():
        return TorchScorer(score)
    return build_scorer(score.arrays(), score.tree, config=config)


def estimator_validation(
    dataset: Dataset, users: HeldOut, *, config: Config
) -> Callable[[Estimator], Mapping[str, float]] | None:
    """The metrics of an estimator that ranks every item for these users; None without users."""
    if len(users) == 0:
        return None

    def validate(estimator: Estimator) -> Mapping[str, float]:
        search = scored_by(estimator, num_items=len(dataset.items))
        return evaluate(search, dataset, users, config=config, cutoffs=CUTOFFS)

    return validate
