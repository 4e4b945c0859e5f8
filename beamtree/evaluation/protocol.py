"""What is measured on held-out users, and how: the same questions for every recommender."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.sequences import Sequences
from beamtree.data.split import HeldOut, Split, split_by_time, split_leave_last_out, split_none, split_users
from beamtree.evaluation.metrics import Metrics, measure
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.found import Ragged

Int32Array = npt.NDArray[np.int32]
Recommend = Callable[["Questions", int], Int32Array]
"""From questions and k to dense items (users, k), best first, -1 where there are fewer."""

CUTOFFS = (20, 40)

SCORES_AT_A_TIME = 2**24
"""Scores (users x items) that are in memory together: 64 MB."""


@dataclass(frozen=True)
class Questions:
    """Held-out users as a recommender sees them: their histories, and what it must not return."""

    sequences: Sequences
    users: HeldOut
    excluded_items: Ragged | None

    def histories(self, length: int) -> Int32Array:
        """The latest items of each user, oldest first, -1 in front: (users, length)."""
        return self.users.histories(self.sequences, length)


def split_dataset(dataset: Dataset, *, config: Config) -> Split:
    """Hold out what the settings say."""
    data = config.data
    seed = config.training.seed if data.split_seed is None else data.split_seed
    match data.holdout:
        case "users":
            return split_users(
                dataset.sequences,
                seed=seed,
                validation_share=data.validation_share,
                test_share=data.test_share,
                protocol=data.protocol,
            )
        case "last":
            return split_leave_last_out(dataset.sequences, seed=seed)
        case "time":
            return split_by_time(dataset, seed=seed, validation_share=data.validation_share, test_share=data.test_share)
        case "none":
            return split_none(dataset.sequences)


def describe_protocol(config: Config) -> str:
    """A sentence to print with every table of metrics."""
    if config.data.protocol == "paper":
        return "protocol paper: repeated labels count each time, seen items may be recommended"
    seen = "are not recommended" if config.retrieval.exclude_seen else "may be recommended"
    return f"protocol clean: distinct labels, seen items {seen}"


def evaluate(
    recommend: Recommend, dataset: Dataset, users: HeldOut, *, config: Config, cutoffs: Sequence[int] = CUTOFFS
) -> Metrics:
    """Ask a recommender for every held-out user and count what it hits."""
    is_paper = config.data.protocol == "paper"
    exclude_seen = config.retrieval.exclude_seen and not is_paper
    excluded = users.seen(dataset.sequences) if exclude_seen else None
    recommended = recommend(Questions(dataset.sequences, users, excluded), max(cutoffs))
    labels = users.labels(dataset.sequences, distinct=not is_paper)
    return measure(recommended, labels, num_items=len(dataset.items), cutoffs=cutoffs)


def by_beam(engine: Engine, *, beam_width: int) -> Recommend:
    """Recommendations by beam search."""
    return lambda questions, k: (
        engine.search(
            questions.histories(engine.history_length),
            k=k,
            beam_width=beam_width,
            excluded_items=questions.excluded_items,
        ).items
    )


def by_scan(engine: Engine) -> Recommend:
    """Recommendations by scoring every item with the same model."""
    return lambda questions, k: (
        engine.scan(questions.histories(engine.history_length), k=k, excluded_items=questions.excluded_items).items
    )


def by_scores(
    scores: Callable[[Int32Array], npt.NDArray[np.float32]], *, history_length: int, num_items: int
) -> Recommend:
    """Recommendations by anything that scores all items (users, items) for histories; the lower item wins a tie.

    Users are asked in blocks, so that no more than `SCORES_AT_A_TIME` scores are in memory together.
    """

    def recommend(questions: Questions, k: int) -> Int32Array:
        histories = questions.histories(history_length)
        found = np.full((len(histories), k), -1, dtype=np.int32)
        block = max(1, SCORES_AT_A_TIME // num_items)
        for first in range(0, len(histories), block):
            part = scores(histories[first : first + block])
            if questions.excluded_items is not None:
                items, offsets = questions.excluded_items
                own = offsets[first : first + len(part) + 1]
                part[np.repeat(np.arange(len(part)), np.diff(own)), items[own[0] : own[-1]]] = -np.inf
            for row, values in enumerate(part, start=first):
                best = _best_items(values, k)
                found[row, : len(best)] = best
        return found

    return recommend


def _best_items(scores: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
    """The items of the k highest finite scores (items,), best first, fewer where there are fewer."""
    least = -np.inf if k >= len(scores) else np.partition(scores, -k)[-k]
    contenders = np.flatnonzero((scores >= least) & np.isfinite(scores))
    return contenders[np.argsort(-scores[contenders], kind="stable")][:k]
