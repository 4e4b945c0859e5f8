"""Where the long stages of a fit are computed: in this process, or by whoever stands in for it."""

from dataclasses import dataclass

from beamtree.model.counting import HERE, Counters
from beamtree.training.relearn import ScoreCandidates
from beamtree.training.trainer import RunTraining, Trainer


@dataclass(frozen=True)
class FitBackend:
    """train: carries the trainings out. counters: count the memory. score_candidates: scores the places of items when
    the tree is learned anew; None = in this process."""

    train: RunTraining = Trainer.run
    counters: Counters = HERE
    score_candidates: ScoreCandidates | None = None


LOCAL = FitBackend()
"""Everything in this process."""
