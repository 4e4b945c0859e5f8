"""Tuning of baselines on validation users, never on test users."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.evaluation.answers import Answers
from beamtree.evaluation.protocol import evaluate

CUTOFF = 20
MAX_USERS = 1000
"""Validation users that a setting is judged by: a seeded sample where there are more."""

SettingT = TypeVar("SettingT")
AnswersT = TypeVar("AnswersT", bound=Answers)

log = logging.getLogger(__name__)


def choose(
    settings: Iterable[SettingT],
    fit: Callable[[SettingT], AnswersT],
    dataset: Dataset,
    split: Split,
    *,
    name: str,
    budget: Budget,
) -> AnswersT:
    """The system whose setting has the best F@20 on validation users; the first of equals.

    Without validation users it is the first setting's. InterruptedTraining when asked to stop between two settings.
    """
    generator = np.random.default_rng(budget.seed)
    users = split.validation.take(np.sort(generator.permutation(len(split.validation))[:MAX_USERS]))
    best: AnswersT | None = None
    best_score = -np.inf
    for setting in settings:
        budget.stop_if_asked()
        if best is not None and (budget.is_spent or not len(users)):
            break
        fitted = fit(setting)
        score = 0.0
        if len(users):
            score = evaluate(fitted, dataset, users, config=budget.config, cutoffs=(CUTOFF,))[f"f@{CUTOFF}"]
        log.info("%s with %s: validation F@%d %.4f", name, setting, CUTOFF, score)
        if score > best_score:
            best, best_score = fitted, score
    if best is None:
        raise ValueError(f"{name} was given no setting to choose from.")
    return best
