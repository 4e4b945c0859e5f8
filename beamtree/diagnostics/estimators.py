"""Which estimator the label diagnostics ask: SASRec where it was trained for this model, else popularity."""

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
    """An estimator and what to call it in a report."""

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
    """The encoder with the model's settings, trained when asked for and kept in `directory`; "auto" takes it if kept.

    A model folder carries no estimator, so popularity stands in where none was trained yet.
    """
    is_kept = estimator_store(dataset, split, config=artefact.config, directory=directory).is_finished
    if choice == "popularity" or (choice == "auto" and not is_kept):
        return NamedEstimator(POPULARITY, PopularityEstimator(artefact.popularity))
    trained = train_estimator(dataset, split, config=artefact.config, directory=directory, listen=listen)
    return NamedEstimator(ENCODER, trained.estimator)
