"""Learned embeddings of features of items and requests: one vector per value, trained with the part that reads it."""

from collections.abc import Mapping
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.data.features import Features, FeatureSchema
from beamtree.data.request_features import RequestFeatures
from beamtree.data.requests import Requests
from beamtree.native.offset_arrays import CONTEXT, USER, FeatureArrays, OffsetArrays
from beamtree.types import AnyArray


class FeatureVectors(nn.Module):
    """Vectors of items from their features alone, learned with whatever reads them; zero before learning.

    embedding: (rows of the schema, width); projection: (numbers in vectors, width).
    """

    def __init__(self, features: Features, *, num_rows: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.zeros(num_rows, width))
        self.projection = nn.Parameter(torch.zeros(features.vectors.shape[1], width))
        self.register_buffer("entries", torch.from_numpy(features.entries.astype(np.int64)), persistent=False)
        self.register_buffer("weights", torch.from_numpy(features.weights), persistent=False)
        self.register_buffer("vectors", torch.from_numpy(features.vectors), persistent=False)

    def forward(self, items: Tensor | None = None) -> Tensor:
        """Vectors (n, width) of items (n,); None: of all."""
        entries, weights, vectors = (self.get_buffer(name) for name in ("entries", "weights", "vectors"))
        if items is not None:
            entries, weights, vectors = entries[items], weights[items], vectors[items]
        return _summed(vectors @ self.projection, entries, weights, self.embedding)


class GivenFeatureVectors(nn.Module):
    """The same of whatever features it is given.

    embedding: (rows of the schema, width); projection: (numbers in vectors, width), None where there are none.
    """

    def __init__(self, *, num_rows: int, vector_size: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.zeros(num_rows, width))
        self.projection = nn.Parameter(torch.zeros(vector_size, width)) if vector_size else None

    def forward(self, features: Features) -> Tensor:
        """Vectors (n, width) of features of n rows."""
        device = self.embedding.device
        entries = torch.from_numpy(features.entries).to(device, torch.int64)
        summed = self.embedding.new_zeros(len(features), self.embedding.shape[1])
        if self.projection is not None:
            summed = torch.from_numpy(features.vectors).to(device) @ self.projection
        return _summed(summed, entries, torch.from_numpy(features.weights).to(device), self.embedding)

    def arrays(self) -> FeatureArrays:
        """The tables as they are now."""
        projection = None if self.projection is None else self.projection.detach().cpu().numpy()
        return FeatureArrays(self.embedding.detach().cpu().numpy(), projection)


class RequestVectors(nn.Module):
    """The offset of a request: the feature vectors of its user and of its context, zero before training.

    user, context: None if no features are read of them.
    """

    def __init__(self, user: GivenFeatureVectors | None, context: GivenFeatureVectors | None) -> None:
        super().__init__()
        self.user, self.context = user, context

    @classmethod
    def of(cls, read: RequestFeatures, *, width: int) -> Self | None:
        """For columns that are read; None where there are none."""

        def made(schema: FeatureSchema) -> GivenFeatureVectors | None:
            if not schema:
                return None
            return GivenFeatureVectors(num_rows=schema.num_rows, vector_size=schema.vector_size, width=width)

        return cls(made(read.user), made(read.context)) if read else None

    @classmethod
    def like(cls, arrays: Mapping[str, AnyArray]) -> Self | None:
        """Of the sizes of stored arrays, such as offset.user.embedding; None where there are none."""

        def made(prefix: str) -> GivenFeatureVectors | None:
            if f"{prefix}.embedding" not in arrays:
                return None
            num_rows, width = arrays[f"{prefix}.embedding"].shape
            vector_size = len(arrays.get(f"{prefix}.projection", ()))
            return GivenFeatureVectors(num_rows=num_rows, vector_size=vector_size, width=width)

        user, context = made(USER), made(CONTEXT)
        return None if user is None and context is None else cls(user, context)

    def forward(self, encoded: Tensor, *, user: Features | None, context: Features | None, repeats: Tensor) -> Tensor:
        """Encoded histories (n, width) and what features add to them; contexts have n rows.

        repeats: (users,), how many of the rows, one after another, each of the users has.
        """
        if self.user is not None and user is not None:
            of_row = torch.repeat_interleave(torch.arange(len(repeats), device=repeats.device), repeats)
            # Unlike indexing, embedding adds the gradients of repeated rows in a fixed order.
            encoded = encoded + functional.embedding(of_row, self.user(user))
        if self.context is not None and context is not None:
            encoded = encoded + self.context(context)
        return encoded

    def of_requests(self, requests: Requests) -> Tensor | None:
        """The offsets (requests, width); None if the requests have no features of users and contexts."""
        pairs = ((self.user, requests.user_features), (self.context, requests.context))
        found = [vectors(features) for vectors, features in pairs if vectors is not None and features is not None]
        return sum(found[1:], start=found[0]) if found else None

    def arrays(self) -> OffsetArrays:
        """The tables as they are now."""
        user, context = (None if table is None else table.arrays() for table in (self.user, self.context))
        return OffsetArrays(user, context)


def _summed(start: Tensor, entries: Tensor, weights: Tensor, embedding: Tensor) -> Tensor:
    """(n, width): the start, plus the weighted rows of an embedding."""
    if not entries.shape[1]:
        return start
    return start + functional.embedding_bag(entries, embedding, mode="sum", per_sample_weights=weights)
