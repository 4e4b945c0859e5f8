"""Node-wise binary cross-entropy (TDM, JTM and PLT)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from beamtree.baselines.trees.labelled_nodes import ChooseNodes
from beamtree.baselines.trees.node_scores import NodeScores
from beamtree.model.score import Score
from beamtree.training.instances import Batch


@dataclass(frozen=True)
class NodewiseLoss:
    """The mean cross-entropy over the nodes that `choose` picks and labels, on all levels and for all instances."""

    choose: ChooseNodes

    def __call__(self, score: Score, batch: Batch, generator: torch.Generator) -> Tensor:
        """As `NodeLoss`."""
        chosen = self.choose(batch.targets, generator=numpy_stream(generator))
        rows = torch.from_numpy(chosen.rows)
        score_nodes = NodeScores(score, batch.requests, dropout=generator if score.training else None)
        scores = score_nodes(range(1, len(rows) + 1), rows)
        return binary_cross_entropy(scores, torch.from_numpy(chosen.labels), present=rows >= 0)


def binary_cross_entropy(scores: Tensor, labels: Tensor, *, present: Tensor) -> Tensor:
    """Mean of -z ln s(o) - (1 - z) ln(1 - s(o)) where there is a node; all of the same shape."""
    return binary_cross_entropy_with_logits(scores[present], labels[present])


def numpy_stream(generator: torch.Generator) -> np.random.Generator:
    """NumPy's generator with a seed that torch's draws."""
    return np.random.default_rng(int(torch.randint(2**62, (), generator=generator, device=generator.device)))
