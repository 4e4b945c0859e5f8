"""Whether what was learned is better than what is in use, on the newest interactions of users who were held out."""

from dataclasses import dataclass
from typing import Any

from beamtree.evaluation.metrics import Metrics
from beamtree.updating.tower import FallenSubtrees

CHOSEN_BY = "recall@20"
"""What must not fall for an update, or another placement of items, to be taken."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """The model before and after an update, asked what some users did in the new rows."""

    before: Metrics
    after: Metrics

    @property
    def is_worse(self) -> bool:
        """Whether the update would do worse than what is in use."""
        return self.after[CHOSEN_BY] < self.before[CHOSEN_BY]

    def __str__(self) -> str:
        before, after = self.before[CHOSEN_BY], self.after[CHOSEN_BY]
        return f"{CHOSEN_BY} on the newest rows of {self.after.num_users:,} users: {before:.4f} before, {after:.4f} now"


@dataclass(frozen=True, eq=False)
class Replacement:
    """Subtrees that were placed anew, and the updated model with them as they were and as they would be."""

    subtrees: FallenSubtrees
    before: Metrics
    after: Metrics

    @property
    def is_kept(self) -> bool:
        """Whether the new placement is taken: it must not find less."""
        return self.after[CHOSEN_BY] >= self.before[CHOSEN_BY]

    @property
    def kept(self) -> Metrics:
        """Of the placement that is taken."""
        return self.after if self.is_kept else self.before

    def __str__(self) -> str:
        before, after = self.before[CHOSEN_BY], self.after[CHOSEN_BY]
        if self.is_kept:
            return f"{self.subtrees} and were placed anew: {CHOSEN_BY} {before:.4f} without that, {after:.4f} with it"
        return f"{self.subtrees} and stay: placed anew, {CHOSEN_BY} would be {after:.4f} instead of {before:.4f}"

    def as_json(self) -> dict[str, Any]:
        """For the report of an update."""
        return {
            "subtrees": len(self.subtrees.roots),
            "of": self.subtrees.num_subtrees,
            "items": self.subtrees.num_items,
            "log_likelihood": [round(value, 4) for value in self.subtrees.mean_log_likelihoods],
            CHOSEN_BY: [round(self.before[CHOSEN_BY], 5), round(self.after[CHOSEN_BY], 5)],
            "is_kept": self.is_kept,
        }
