"""What features say of items: vectors that all items with a value share, learned with whatever reads them."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.data.features import Features


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
        summed: Tensor = vectors @ self.projection
        if entries.shape[1]:
            summed = summed + functional.embedding_bag(entries, self.embedding, mode="sum", per_sample_weights=weights)
        return summed
