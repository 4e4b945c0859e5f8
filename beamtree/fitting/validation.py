"""How models are compared while they learn: by what they recommend to a sample of the validation users."""

from collections.abc import Callable, Mapping

import numpy as np

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import HeldOut
from beamtree.evaluation.protocol import by_beam, by_scores, evaluate
from beamtree.model.estimator import Estimator
from beamtree.model.preference import PreferenceModel
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.training.checkpoint import model_arrays
from beamtree.training.optimise import SELECTION_METRIC
from beamtree.training.randomness import numpy_generator
from beamtree.tree.item_tree import ItemTree

CUTOFFS = (20,)


def sample_users(users: HeldOut, *, config: Config, seed: int) -> HeldOut:
    """At most `training.validation_users` of the users, in their order."""
    generator = numpy_generator(seed, "validation")
    return users.take(np.sort(generator.permutation(len(users))[: config.training.validation_users]))


def model_validation(
    dataset: Dataset, users: HeldOut, *, tree: ItemTree, config: Config
) -> Callable[[PreferenceModel], Mapping[str, float]] | None:
    """The metrics of a model that searches this tree for these users; None where there are no users."""
    if len(users) == 0:
        return None

    def validate(model: PreferenceModel) -> Mapping[str, float]:
        weights = {f"attention/{name}": array for name, array in model_arrays(model).items()}
        engine = Engine(build_scorer(weights, tree, settings=config.model), tree)
        recommend = by_beam(engine, beam_width=config.retrieval.beam_width)
        return evaluate(recommend, dataset, users, config=config, cutoffs=CUTOFFS)

    return validate


def estimator_validation(dataset: Dataset, users: HeldOut, *, config: Config) -> Callable[[Estimator], float] | None:
    """The score of an estimator that ranks every item for these users; None where there are no users."""
    if len(users) == 0:
        return None

    def validate(estimator: Estimator) -> float:
        recommend = by_scores(estimator.scores, history_length=estimator.history_length, num_items=len(dataset.items))
        return evaluate(recommend, dataset, users, config=config, cutoffs=CUTOFFS)[SELECTION_METRIC]

    return validate
