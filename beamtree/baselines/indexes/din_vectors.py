"""The published setting: DIN's item vectors, and the mean of a history's vectors as the query. Needs torch."""

import hashlib
import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace

import numpy as np

from beamtree.baselines.protocol import Budget
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.model.counting import count_items
from beamtree.types import NOTHING, Float32Array

MAX_INSTANCES = 600_000
"""Training instances that DIN learns from, at most."""

HISTORIES_AT_A_TIME = 2048


@dataclass(frozen=True, eq=False)
class MeanOfHistory:
    """The query is the mean of the vectors of the latest `history_length` items.

    without_history: (size,), the query of an empty history.
    """

    item_vectors: Float32Array
    history_length: int
    without_history: Float32Array

    def queries(self, requests: Requests) -> Float32Array:
        """As `VectorSource.queries`."""
        queries = np.empty((len(requests), self.item_vectors.shape[1]), dtype=np.float32)
        for first in range(0, len(requests), HISTORIES_AT_A_TIME):
            rows = slice(first, first + HISTORIES_AT_A_TIME)
            items = requests.histories.take(rows).latest(self.history_length)
            present = items != NOTHING
            counts = present.sum(axis=1, keepdims=True)
            sums = (self.item_vectors[items] * present[:, :, None]).sum(axis=1)
            queries[rows] = np.where(counts > 0, sums / np.maximum(counts, 1), self.without_history)
        return queries


def din_vectors(dataset: Dataset, split: Split, *, budget: Budget) -> MeanOfHistory:
    """As `MakeVectors`.

    What is taken: the embedding table of beamtree's attention network (DIN with time windows) that scores items alone,
    no inner nodes. Candidates and history items share the table, as in DIN. It learns with uniform negatives and the
    sizes, targets, first vectors and rates of `budget.config`, from `MAX_INSTANCES` instances at most, and no
    validation stops it. Left open by the paper and chosen here: the mean is over as many of the latest items as DIN
    reads, and who has no history is asked for with the mean over all training interactions.
    """
    from beamtree.fitting.fit import fit_model
    from beamtree.fitting.run import WorkDirectory
    from beamtree.training.exclusive import exclusive

    config = _leaves_alone(budget.config)
    work: WorkDirectory | None = None
    claimed: AbstractContextManager[None] = nullcontext()
    if budget.directory is not None:
        place = budget.directory / f"din-{_key(dataset, split, config)[:16]}"
        place.mkdir(parents=True, exist_ok=True)
        work = WorkDirectory(place, resume=True)
        claimed = exclusive(place.with_suffix(".lock"), on_wait=lambda _: None, should_stop=budget.should_stop)
    unvalidated = replace(split, validation=split.validation.take(slice(0, 0)))
    with claimed:
        fitted = fit_model(
            dataset, unvalidated, config=config, work=work, listen=budget.listen, should_stop=budget.should_stop
        )
    tree = fitted.tree
    leaves = np.asarray(fitted.weights["attention/node_table"][tree.level_offsets[tree.height] :], dtype=np.float32)
    vectors = np.ascontiguousarray(leaves[tree.leaf_of_item])
    counts = count_items(dataset.sequences.items, split.train, num_items=len(dataset.items))
    mean = counts.astype(np.float32) @ vectors / np.float32(max(1, counts.sum()))
    return MeanOfHistory(vectors, config.model.history_length, mean)


def _leaves_alone(config: Config) -> Config:
    """The settings with attention as the only part of the score, which is learned at the leaves of any tree."""
    changes = {
        "tree": {"order": "random"},
        "model": {"parts": ("attention",), "attention_levels": 1, "history_table": "shared"},
        "training": {
            "method": "dtr-u",
            "rounds": 1,
            "path_start": "level",
            "most_instances": min(config.training.most_instances or MAX_INSTANCES, MAX_INSTANCES),
        },
    }
    settings = config.model_dump()
    merged = {name: values | changes.get(name, {}) for name, values in settings.items()}
    # Levels above the leaves have no score, which is refused where a tree is to be searched; this one never is.
    return Config.resolve(merged, refuse_contradictions=False)


def _key(dataset: Dataset, split: Split, config: Config) -> str:
    """A name for what decides the vectors: data, training spans and settings."""
    key = hashlib.sha256(dataset.fingerprint.encode())
    for field in fields(split.train):
        key.update(np.ascontiguousarray(getattr(split.train, field.name)).tobytes())
    key.update(json.dumps([config.model_dump(mode="json"), split.first_target], sort_keys=True).encode())
    return key.hexdigest()
