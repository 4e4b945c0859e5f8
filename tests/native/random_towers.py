"""Random towers for the kernels' tests, and what torch and plain NumPy make of them."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch

from beamtree.data.requests import Histories
from beamtree.model.sequence_encoder import SequenceEncoder, initialise
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array, Int64Array


@dataclass(frozen=True)
class PlainTower:
    """The encoder in torch, a table with a row for each node of the tree, and what the tower counts."""

    encoder: SequenceEncoder
    tree: ItemTree
    node_table: Float32Array
    weight: float

    def arrays(self) -> dict[str, np.ndarray]:
        """As a model holds them, without the part's name."""
        encoder = {f"encoder.{name}": tensor.numpy() for name, tensor in self.encoder.state_dict().items()}
        return {"node_table": self.node_table, "weight": np.array(self.weight, dtype=np.float32), **encoder}

    @torch.no_grad()
    def encode(self, histories: Histories) -> Float32Array:
        """Vectors (n, width), each history by itself, in double precision."""
        encoder = copy.deepcopy(self.encoder).double()
        rows = self.tree.level_offsets[self.tree.height] + self.tree.leaf_of_item
        vectors = self.node_table[rows].astype(np.float64)
        encoded = []
        for number in range(len(histories)):
            history = histories.row(number)[-self.encoder.history_length :]
            read = vectors[history] if len(history) else np.zeros_like(vectors[:1])
            present = torch.full((1, len(read)), len(history) > 0)
            encoded.append(encoder.expectation(torch.from_numpy(read)[None], present=present)[0].numpy())
        return np.stack(encoded).astype(np.float32)

    def scores(self, vector: Float32Array, level: int, nodes: Int64Array) -> Float32Array:
        """Scores (n,) of nodes (n,) of a level for an encoded history (width,)."""
        scores: Float32Array = self.weight * (self.node_table[self.tree.level_offsets[level] + nodes] @ vector)
        return scores


def random_tower(generator: np.random.Generator, tree: ItemTree, encoder: SequenceEncoder) -> PlainTower:
    """A tower in which no weight, gain, bias or recency of the encoder has its special first value."""
    draws = torch.Generator().manual_seed(int(generator.integers(1 << 30)))
    initialise(encoder, draws)
    with torch.no_grad():
        for tensor in encoder.parameters():
            noise = torch.randn(tensor.shape, generator=draws)
            tensor.add_(noise, alpha=0.3 / tensor.shape[-1] ** (0.5 * (tensor.dim() > 1)))
    table = generator.normal(size=(tree.num_nodes, encoder.width)).astype(np.float32)
    return PlainTower(encoder, tree, table, weight=0.7)
