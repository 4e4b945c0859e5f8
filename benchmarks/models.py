"""Random models at the paper's sizes: K 69 in ten windows, d 24, attention 36, layers 128, 64, 24."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from beamtree.config import Config, ModelSettings
from beamtree.data.requests import Histories, Requests
from beamtree.model.attention import Attention
from beamtree.native.attention import AttentionArrays
from beamtree.native.score import KernelScore
from beamtree.training.native_learner import attention_arrays
from beamtree.tree.item_tree import ItemTree

SETTINGS = Config.preset("paper", model={"network": {"normalisation": "none", "dropout": 0.0}}).model


@dataclass(frozen=True)
class Subject:
    """One random model for both sides of a comparison."""

    settings: ModelSettings
    tree: ItemTree
    torch_model: Attention

    def score(self) -> KernelScore:
        """The model as the kernels search it."""
        return KernelScore(self.tree, attention=self.attention())

    def attention(self) -> AttentionArrays:
        """The model as the kernels learn it."""
        return attention_arrays(self.torch_model)

    def histories(self, count: int, *, seed: int = 0) -> NDArray[np.int32]:
        """Full histories of random items: (count, positions)."""
        generator = np.random.default_rng(seed)
        shape = (count, self.settings.attention_history)
        return generator.integers(0, self.tree.num_items, shape).astype(np.int32)


def asked_by(histories: NDArray[np.int32]) -> Requests:
    """Requests of padded histories (count, positions)."""
    return Requests(Histories.of_rows(histories))


def random_subject(*, items: int, seed: int = 0) -> Subject:
    """A random tree of `items` leaves, branching 2, and a random model for it."""
    tree = ItemTree(2, np.random.default_rng(seed).permutation(items).astype(np.int32))
    model = Attention(SETTINGS, tree, generator=torch.Generator().manual_seed(seed))
    return Subject(SETTINGS, tree, model.eval())
