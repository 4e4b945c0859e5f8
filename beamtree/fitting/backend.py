"""Where the long stages of a fit run: in this process or elsewhere, such as on a cluster."""

from dataclasses import dataclass

from beamtree.model.counting import HERE, Counters
from beamtree.training.relearn import ScoreCandidates
from beamtree.training.trainer import RunTraining, Trainer


@dataclass(frozen=True)
class FitBackend:
    """train: runs a training. counters: count the memory. score_candidates: scores candidate nodes when the tree is
    relearned; None = in this process."""

    train: RunTraining = Trainer.run
    counters: Counters = HERE
    score_candidates: ScoreCandidates | None = None


LOCAL = FitBackend()
"""Everything in this process."""
