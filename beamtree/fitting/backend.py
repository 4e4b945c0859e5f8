"""Where the long stages of a fit are computed: in this process, or by whoever stands in for it."""

from dataclasses import dataclass

from beamtree.training.trainer import RunTraining, Trainer


@dataclass(frozen=True)
class FitBackend:
    """train: carries the trainings out."""

    train: RunTraining = Trainer.run


LOCAL = FitBackend()
"""Everything in this process."""
