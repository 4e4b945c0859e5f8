"""A fit in progress: its data, settings and listeners, how it is stopped, and its checkpoint folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.errors import InterruptedTraining
from beamtree.fitting.backend import LOCAL, FitBackend
from beamtree.model.counting import count_items
from beamtree.model.next_item import NextItemModel
from beamtree.model.part import MakePartOnTree
from beamtree.training.checkpoint import OWNER, Checkpoint, Identity, load_checkpoint, save_checkpoint
from beamtree.training.events import Listener
from beamtree.training.horizon import TargetHorizon
from beamtree.training.instances import TrainingInstances
from beamtree.training.rounds import round_seed
from beamtree.types import Int64Array

KIND = "fit"


@dataclass(frozen=True)
class WorkDirectory:
    """The checkpoint folder of a run, and whether to resume from it."""

    directory: Path
    resume: bool

    def claim(self, identity: Identity) -> None:
        """Record the identity of the run in the folder; ArtefactError on resuming a different run.

        Recorded before any training, so that a run that was stopped at any stage can be identified.
        """
        if self.resume and load_checkpoint(self.directory / OWNER, kind=KIND, identity=identity) is not None:
            return
        save_checkpoint(self.directory / OWNER, Checkpoint({}, {}), kind=KIND, identity=identity)


@dataclass(frozen=True)
class FitRun:
    """What every stage of a fit needs.

    instances: with the targets of the first round. parts: trained in rounds, by name. encoder: that of the tower,
    trained before the rounds; None without a tower. backend: where the long stages run.
    """

    dataset: Dataset
    split: Split
    config: Config
    work: WorkDirectory | None
    listen: Listener
    should_stop: Callable[[], bool]
    instances: TrainingInstances
    parts: Mapping[str, MakePartOnTree] = field(default_factory=dict)
    encoder: NextItemModel | None = None
    backend: FitBackend = LOCAL

    def instances_of_round(self, round_number: int) -> TrainingInstances:
        """The training instances, with targets drawn for this round."""
        return self.instances.with_seed(round_seed(self.config.training.seed, round_number))

    def stop_while(self, doing: str) -> Callable[[], None]:
        """A callback for stages without checkpoints: InterruptedTraining on a stop request."""
        kept = "no folder for checkpoints was given" if self.work is None else "it begins again with --resume"

        def on_step() -> None:
            if self.should_stop():
                raise InterruptedTraining(f"Stopped while {doing}. Nothing of that was saved: {kept}.")

        return on_step


def identity_of(dataset: Dataset, *, config: Config, strategies: Mapping[str, str] | None = None) -> Identity:
    """What a resumed run must share with the original: data, settings, features of users and contexts.

    strategies: see `Identity.of`.
    """
    return Identity.of(
        config, data_fingerprint=dataset.fingerprint, features=dataset.features.digest(), strategies=strategies
    )


def training_popularity(dataset: Dataset, split: Split) -> Int64Array:
    """Interactions of each item (items,) inside the training spans, by their weights."""
    sequences = dataset.sequences
    return count_items(sequences.items, split.train, num_items=len(dataset.items), weights=sequences.weights)


def training_instances(dataset: Dataset, split: Split, *, config: Config) -> TrainingInstances:
    """The instances of the training spans, with targets drawn by the settings."""
    return TrainingInstances(
        dataset.sequences,
        split.train,
        first_target=split.first_target,
        horizon=TargetHorizon.of(config.training, seed=config.training.seed),
        times=dataset.timestamps,
        features=dataset.features,
    )
