"""The estimator of the label diagnostics: the trained encoder of the model if there is one, else popularity."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from beamtree.artefact import Artefact
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.fitting.estimator import estimator_store, train_estimator
from beamtree.model.estimator import Estimator, PopularityEstimator
from beamtree.training.events import Listener

EstimatorChoice = Literal["auto", "popularity", "encoder"]

ENCODER = "encoder"
POPULARITY = "popularity"


@dataclass(frozen=True)
class NamedEstimator:
    """An estimator and its name in a report."""

    name: str
    estimator: Estimator


def choose_estimator(
    choice: EstimatorChoice,
    artefact: Artefact,
    dataset: Dataset,
    split: Split,
    *,
    directory: Path,
    listen: Listener,
) -> NamedEstimator:
    """The encoder with the model's settings, stored in `directory`, or popularity; "auto" takes the encoder if stored.

    A model folder has no estimator, so popularity is the fallback.
    """
    is_kept = estimator_store(dataset, split, config=artefact.config, directory=directory).is_finished
    if choice == "popularity" or (choice == "auto" and not is_kept):
        return NamedEstimator(POPULARITY, PopularityEstimator(artefact.popularity))
    trained = train_estimator(dataset, split, config=artefact.config, directory=directory, listen=listen)
    return NamedEstimator(ENCODER, trained.estimator)
