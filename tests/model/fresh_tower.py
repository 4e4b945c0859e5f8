"""Fresh towers, and towers of another weight."""

import numpy as np
import torch

from beamtree.config import Config
from beamtree.model.encoders import make_encoder
from beamtree.model.tower import Tower
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray


def make_tower(tree: ItemTree, config: Config, generator: torch.Generator) -> Tower:
    """A fresh tower of the estimator's sizes."""
    sizes = config.estimator
    encoder = make_encoder(sizes, history_length=config.encoder_history)
    return Tower(tree, encoder, dropout=sizes.recipe.dropout, generator=generator)


def weighted(arrays: dict[str, AnyArray], weight: float) -> dict[str, AnyArray]:
    """The arrays of the same tower with another weight in the sum."""
    return arrays | {"weight": np.array(weight, dtype=np.float32)}
