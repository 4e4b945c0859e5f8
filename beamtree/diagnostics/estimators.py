"""Which estimator the label diagnostics ask: SASRec where it was trained for this model, else popularity."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from beamtree.artefact import Artefact
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.fitting.estimator import train_estimator
from beamtree.model.estimator import Estimator, PopularityEstimator
from beamtree.storage import MANIFEST
from beamtree.training.events import Listener

EstimatorChoice = Literal["auto", "popularity", "sasrec"]

SASREC = "SASRec"
POPULARITY = "popularity"
UNFINISHED = ".unfinished"


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
    model_directory: Path,
    listen: Listener,
) -> NamedEstimator:
    """SASRec with the model's settings, trained when asked for and kept beside the model; "auto" takes it if kept.

    A model folder carries no estimator, so popularity stands in where none was trained since.
    """
    kept = estimator_directory(model_directory, artefact)
    is_kept = any(manifest.parent.suffix != UNFINISHED for manifest in kept.glob(f"*/{MANIFEST}"))
    if choice == "popularity" or (choice == "auto" and not is_kept):
        return NamedEstimator(POPULARITY, PopularityEstimator(artefact.popularity))
    trained = train_estimator(dataset, split, config=artefact.config, directory=kept, listen=listen)
    return NamedEstimator(SASREC, trained.estimator)


def estimator_directory(model_directory: Path, artefact: Artefact) -> Path:
    """Where the estimator of exactly this model is kept: beside its folder, under its version."""
    folder = model_directory.absolute()
    return folder.parent / f"{folder.name}.estimator" / artefact.version
