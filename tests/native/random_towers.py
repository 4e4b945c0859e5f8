"""Random towers for the kernels' tests, and what torch and plain NumPy make of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from beamtree.config import EstimatorSettings
from beamtree.data.requests import Histories
from beamtree.model.sequence_encoder import SasRec
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array, Int64Array


@dataclass(frozen=True)
class PlainTower:
    """The encoder in torch, a table with a row for each node of the tree, and what the tower counts."""

    encoder: SasRec
    tree: ItemTree
    node_table: Float32Array
    weight: float
    heads: int

    def arrays(self) -> dict[str, np.ndarray]:
        """As a model holds them, without the part's name."""
        encoder = {
            f"encoder.{name}": tensor.numpy() for name, tensor in self.encoder.state_dict().items() if name != "items"
        }
        return {"node_table": self.node_table, "weight": np.array(self.weight, dtype=np.float32), **encoder}

    @torch.no_grad()
    def encode(self, histories: Histories) -> Float32Array:
        """Vectors (n, width), each history by itself."""
        leaves = torch.from_numpy(self.node_table[self.tree.level_offsets[self.tree.height] :][self.tree.leaf_of_item])
        vectors = [
            self.encoder.encode(torch.from_numpy(self._latest(row)), items=leaves)[0, -1].numpy()
            for row in map(histories.row, range(len(histories)))
        ]
        return np.stack(vectors)

    def scores(self, vector: Float32Array, level: int, nodes: Int64Array) -> Float32Array:
        """Scores (n,) of nodes (n,) of a level for an encoded history (width,)."""
        scores: Float32Array = self.weight * (self.node_table[self.tree.level_offsets[level] + nodes] @ vector)
        return scores

    def _latest(self, history: np.ndarray) -> np.ndarray:
        latest = history[-self.encoder.history_length :].astype(np.int64)
        return np.full((1, 1), -1) if len(latest) == 0 else latest[None]


def random_tower(
    generator: np.random.Generator, tree: ItemTree, *, width: int, layers: int, heads: int, history_length: int
) -> PlainTower:
    """A tower in which no weight, gain or bias has its special first value."""
    settings = EstimatorSettings(width=width, layers=layers, heads=heads)
    seed = torch.Generator().manual_seed(int(generator.integers(1 << 30)))
    encoder = SasRec(settings, num_items=1, history_length=history_length, generator=seed).eval()
    with torch.no_grad():
        for tensor in encoder.state_dict().values():
            tensor += 0.3 * torch.rand(tensor.shape, generator=seed)
    table = generator.normal(size=(tree.num_nodes, width)).astype(np.float32)
    return PlainTower(encoder, tree, table, weight=0.7, heads=heads)
