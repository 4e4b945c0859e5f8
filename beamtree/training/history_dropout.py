"""History dropout for attention that reads features: some instances lose their histories, as for new users."""

from dataclasses import replace

import numpy as np

from beamtree.data.requests import Histories
from beamtree.model.attention import Attention
from beamtree.model.next_item import NO_HISTORY_SHARE
from beamtree.model.score import Score
from beamtree.training.instances import Batch


def without_some_histories(batch: Batch, score: Score, *, generator: np.random.Generator) -> Batch:
    """The batch with an empty history in a random share of its instances, as it is where no features are read."""
    if not any(isinstance(part, Attention) and part.offset is not None for part in score.parts.values()):
        return batch
    histories = batch.histories
    is_dropped = generator.random(len(batch)) < NO_HISTORY_SHARE
    starts = np.where(is_dropped, histories.ends, histories.starts)
    return replace(batch, histories=Histories(histories.items, starts, histories.ends))
