"""SASRec's item vectors, and its encoded history as the query. Needs torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import Split
from beamtree.types import Float32Array

if TYPE_CHECKING:
    from beamtree.model.next_item import NextItemModel


@dataclass(frozen=True, eq=False)
class SasRecVectors:
    """SASRec's scores are inner products, so that an exact search gives just what SASRec recommends."""

    encoder: "NextItemModel"
    item_vectors: Float32Array

    def queries(self, requests: Requests) -> Float32Array:
        """As `VectorSource.queries`."""
        return self.encoder.expectations_of(requests)


def sasrec_vectors(dataset: Dataset, split: Split, *, budget: Budget) -> SasRecVectors:
    """As `MakeVectors`: trained with the settings of the section `estimator`, as the baseline `sasrec`."""
    from beamtree.baselines.encoder import trained_encoder

    encoder = trained_encoder("self-attention", dataset, split, budget=budget)
    return SasRecVectors(encoder, np.ascontiguousarray(encoder.item_vectors()))
