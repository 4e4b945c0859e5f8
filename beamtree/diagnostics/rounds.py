"""The course of the training, from the model folder: validation and reassigned items by round."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VALIDATION_METRIC = "f@20"


@dataclass(frozen=True)
class Validation:
    """One validation: the training step, counted over all rounds, and F@20 there."""

    step: int
    f: float


@dataclass(frozen=True)
class Round:
    """One round: its steps, its best validation, and the tree that was learned after it.

    f: F@20 on validation users at the best step, None without validation users. moved_share, score_before, score_after:
    items that changed places and the log-likelihood of the placement; None where no tree was learned after the round.
    """

    number: int
    steps: int
    seconds: float
    f: float | None
    moved_share: float | None
    score_before: float | None
    score_after: float | None


@dataclass(frozen=True)
class TrainingHistory:
    """All rounds in order, all validations in order, and the round whose weights were kept."""

    rounds: tuple[Round, ...]
    validations: tuple[Validation, ...]
    best_round: int | None


def read_training(training: Mapping[str, Any]) -> TrainingHistory:
    """From the training report of an artefact; empty where the artefact carries none."""
    rounds: list[Round] = []
    validations: list[Validation] = []
    steps_before = 0
    for report in training.get("rounds", []):
        rounds.append(
            Round(
                number=int(report["round"]),
                steps=int(report["steps"]),
                seconds=float(report["seconds"]),
                f=report["validation"].get(VALIDATION_METRIC),
                moved_share=report.get("moved_share"),
                score_before=report.get("score_before"),
                score_after=report.get("score_after"),
            )
        )
        for entry in report["validations"]:
            validations.append(Validation(steps_before + int(entry["step"]), float(entry[VALIDATION_METRIC])))
        steps_before += int(report["steps"])
    return TrainingHistory(tuple(rounds), tuple(validations), training.get("best_round"))
