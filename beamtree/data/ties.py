"""Shuffling of rows with equal timestamps, by seed alone.

If a file sorts the rows of one user and timestamp by item, their order leaks the next item.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from beamtree.config import Config
from beamtree.data.columns import ITEM_ID, TIMESTAMP, USER_ID, WEIGHT
from beamtree.data.interactions import InteractionLog


def settle_ties(log: InteractionLog, *, config: Config) -> InteractionLog:
    """The log with tied rows in the kind of order that a model of these settings learns from.

    Where they are shuffled: sorted by user and time, and rows that share both in random order, whatever the order of
    the file. Shuffling again changes nothing.
    """
    if not config.decided.shuffle_ties:
        return log
    return replace(log, frame=shuffle_within(log.frame, keys=(USER_ID, TIMESTAMP), seed=config.split_seed))


def shuffle_within(frame: pl.DataFrame, *, keys: Sequence[str], seed: int) -> pl.DataFrame:
    """Rows sorted by the keys, and among equal keys in an order that the rows of the frame and the seed decide."""
    settled = frame.sort(*keys, ITEM_ID, *(name for name in frame.columns if name == WEIGHT))
    draws = np.random.default_rng(seed).random(settled.height)
    return settled.with_columns(pl.Series("draw", draws)).sort(*keys, "draw").drop("draw")
