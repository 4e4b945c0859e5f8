"""What is measured on held-out users, and how: the same questions for every recommender."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Histories, Requests
from beamtree.data.sequences import Sequences
from beamtree.data.split import HeldOut, Split, split_by_time, split_leave_last_out, split_none, split_users
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.metrics import Metrics, measure
from beamtree.retrieval.engine import Engine
from beamtree.types import Float32Array, Int32Array, Int64Array

Recommend = Callable[[Requests, int], Int32Array]
"""From requests and k to dense items (requests, k), best first, -1 where there are fewer."""

CUTOFFS = (20, 40)

SCORES_AT_A_TIME = 2**24
"""Scores (users x items) that are in memory together: 64 MB."""


def split_dataset(dataset: Dataset, *, config: Config) -> Split:
    """Hold out what the settings say."""
    data, seed = config.data, config.split_seed
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


def describe_protocol(config: Config, measured: Metrics | None = None) -> str:
    """A sentence to print with every table of metrics. measured: any of them, to say how many labels do not count."""
    if config.data.protocol == "paper":
        return "protocol paper: repeated labels count each time, seen items may be recommended"
    if not config.retrieval.excludes_seen:
        return "protocol clean: distinct labels, seen items may be recommended"
    sentence = "protocol clean: distinct labels not seen before, seen items are not recommended"
    if measured is None or measured.num_seen_labels == 0:
        return sentence
    left_out = f" (users left out for that: {measured.num_left_out:,})" if measured.num_left_out else ""
    return f"{sentence}; {measured.num_seen_labels:,} labels that were seen before do not count{left_out}"


def evaluate(
    recommend: Recommend, dataset: Dataset, users: HeldOut, *, config: Config, cutoffs: Sequence[int] = CUTOFFS
) -> Metrics:
    """Ask a recommender for every held-out user who has a label that can be hit, and count what it hits."""
    reachable = reachable_labels(users, dataset.sequences, config=config)
    requests = held_out_requests(dataset, reachable.users, exclude_seen=reachable.excludes_seen)
    recommended = recommend(requests, max(cutoffs))
    measured = measure(recommended, reachable.labels, num_items=len(dataset.items), cutoffs=cutoffs)
    return replace(measured, num_seen_labels=reachable.num_seen_labels, num_left_out=reachable.num_left_out)


def held_out_requests(dataset: Dataset, users: HeldOut, *, exclude_seen: bool) -> Requests:
    """Held-out users as a recommender sees them: their whole histories, when they ask, and what it must not return."""
    last = users.history_end - 1
    return Requests(
        Histories(dataset.sequences.items, users.history_start, users.history_end),
        excluded=Sequences(*users.seen(dataset.sequences)) if exclude_seen else None,
        users=users.user,
        times=None if dataset.timestamps is None else dataset.timestamps[last],
    )


def by_beam(engine: Engine, *, beam_width: int) -> Recommend:
    """Recommendations by beam search."""
    return lambda requests, k: engine.search(requests, k=k, beam_width=beam_width).items


def by_scan(engine: Engine) -> Recommend:
    """Recommendations by scoring every item with the same model."""
    return lambda requests, k: engine.scan(requests, k=k).items


def by_scores(scores: Callable[[Int32Array], Float32Array], *, history_length: int, num_items: int) -> Recommend:
    """Recommendations by anything that scores all items (users, items) for histories; the lower item wins a tie.

    Users are asked in blocks, so that no more than `SCORES_AT_A_TIME` scores are in memory together.
    """

    def recommend(requests: Requests, k: int) -> Int32Array:
        histories = requests.histories.latest(history_length)
        found = np.full((len(histories), k), -1, dtype=np.int32)
        block = max(1, SCORES_AT_A_TIME // num_items)
        for first in range(0, len(histories), block):
            part = scores(histories[first : first + block])
            if requests.allowed is not None:
                part[:, ~requests.allowed] = -np.inf
            if requests.excluded is not None:
                own = requests.excluded.offsets[first : first + len(part) + 1]
                unwanted = requests.excluded.items[own[0] : own[-1]]
                part[np.repeat(np.arange(len(part)), np.diff(own)), unwanted] = -np.inf
            for row, values in enumerate(part, start=first):
                best = _best_items(values, k)
                found[row, : len(best)] = best
        return found

    return recommend


def _best_items(scores: Float32Array, k: int) -> Int64Array:
    """The items of the k highest finite scores (items,), best first, fewer where there are fewer."""
    least = -np.inf if k >= len(scores) else np.partition(scores, -k)[-k]
    contenders = np.flatnonzero((scores >= least) & np.isfinite(scores))
    return contenders[np.argsort(-scores[contenders], kind="stable")][:k]
