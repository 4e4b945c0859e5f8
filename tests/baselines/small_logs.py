"""Logs whose answers are obvious, and requests to ask about them."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from beamtree.baselines.protocol import Budget
from beamtree.data.columns import ITEM_ID
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Histories, Requests
from beamtree.data.split import HeldOut, Spans, Split, split_none
from beamtree.data.vocabulary import Vocabulary
from beamtree.types import AnyArray
from tests.small import sequences_of, small_config


def dataset_of(lists: list[list[int]], *, num_items: int, times: Sequence[Sequence[float]] | None = None) -> Dataset:
    """Users who did this, items 0 to num_items - 1. times: of each interaction; without them there are none."""
    ids = pl.Series(ITEM_ID, np.arange(num_items))
    table = pl.DataFrame({ITEM_ID: ids, "category": [None] * num_items, "title": [None] * num_items})
    stamps = None if times is None else np.array([time for each in times for time in each])
    return Dataset(
        Vocabulary(pl.Series("user_id", np.arange(len(lists)))), Vocabulary(ids), sequences_of(lists), table, stamps
    )


def whole(dataset: Dataset) -> Split:
    """Everything is trained on; nobody is held out."""
    return split_none(dataset.sequences)


def halves(dataset: Dataset, *, validation: Sequence[int] = ()) -> Split:
    """These users are trained on and asked with their first half; their second half validates."""
    offsets = dataset.sequences.offsets
    users = np.array(validation, dtype=np.int32)
    start, end = offsets[:-1].copy(), offsets[1:].copy()
    middle = (start + end) // 2
    held = HeldOut(users, start[users], middle[users], middle[users], offsets[1:][users])
    end[users] = middle[users]
    everybody = np.arange(len(dataset.sequences), dtype=np.int32)
    return Split(Spans(everybody, start, end), held, held.take(slice(0, 0)), 1, "halves")


def ask(*histories: list[int], excluded: list[list[int]] | None = None, times: AnyArray | None = None) -> Requests:
    return Requests(
        Histories.of_lists(histories), excluded=None if excluded is None else sequences_of(excluded), times=times
    )


def budget(*, exclude_seen: bool = True, seed: int = 0) -> Budget:
    """SASRec in a size that learns small logs in a second."""
    return Budget(
        small_config(
            estimator={
                "width": 16,
                "encoder": "self-attention",
                "layers": 1,
                "dropout": 0.0,
                "epochs": 16,
                "learning_rate": 0.02,
            },
            retrieval={"exclude_seen": exclude_seen},
            training={"seed": seed},
        )
    )
