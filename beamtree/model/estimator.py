"""Estimators of the next item: any function from histories to scores over the items.

Rectified labels depend on the estimator's most probable item below each node. It is trained on the same training set as
the preference model, before it. The usual one is a sequence encoder (`sequence_encoder.py`).
"""

from typing import Protocol, runtime_checkable

import numpy as np

from beamtree.data.requests import Requests
from beamtree.types import Float32Array, Int32Array, Int64Array


class Estimator(Protocol):
    """Anything that scores all items for histories.

    Rectified labels depend on the order of the scores within a row alone; diagnostics take their softmax.
    history_length: number of latest items that it reads.
    """

    history_length: int

    def scores(self, histories: Int32Array) -> Float32Array:
        """(histories, items) for histories (histories, positions) of dense items, oldest first, -1 in front."""


@runtime_checkable
class InnerProductEstimator(Estimator, Protocol):
    """An estimator whose score of an item is the inner product of the item's vector with what it makes of a history."""

    def expectations(self, histories: Int32Array) -> Float32Array:
        """(histories, width) for histories as in `scores`."""

    def item_vectors(self) -> Float32Array:
        """(items, width)."""


@runtime_checkable
class RequestEstimator(InnerProductEstimator, Protocol):
    """An estimator that also reads features of the user and of the context."""

    def scores_of(self, requests: Requests) -> Float32Array:
        """(requests, items)."""

    def expectations_of(self, requests: Requests) -> Float32Array:
        """(requests, width)."""


def scores_of(estimator: Estimator, requests: Requests) -> Float32Array:
    """Scores (requests, items) by all that an estimator reads of requests."""
    if isinstance(estimator, RequestEstimator):
        return estimator.scores_of(requests)
    return estimator.scores(requests.histories.latest(estimator.history_length))


def expectations_of(estimator: InnerProductEstimator, requests: Requests) -> Float32Array:
    """What it makes of requests, (requests, width), by all that it reads of them."""
    if isinstance(estimator, RequestEstimator):
        return estimator.expectations_of(requests)
    return estimator.expectations(requests.histories.latest(estimator.history_length))


class PopularityEstimator:
    """The simplest estimator: item popularity, the same for all histories."""

    history_length = 1

    def __init__(self, counts: Int64Array) -> None:
        """counts: (items,), training interactions of each item."""
        self._scores = np.log1p(counts).astype(np.float32)

    def scores(self, histories: Int32Array) -> Float32Array:
        """The same scores for every history."""
        return np.tile(self._scores, (len(histories), 1))
