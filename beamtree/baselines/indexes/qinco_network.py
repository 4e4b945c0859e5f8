"""QINCo's network: each step has a codebook that depends on what the steps before have decoded to."""

import logging

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.baselines.protocol import Budget
from beamtree.types import AnyArray, Float32Array

CANDIDATES = 16
"""Codewords of a step that encoding runs the network for: those nearest to the residual before it."""

BATCH_SIZE = 256
LEARNING_RATES = (1e-3, 1e-4)
"""To choose from by the error at the end: the paper's, and a tenth of it for small catalogues, whose vectors the
residual quantiser's codebooks fit so well that larger steps lead away from them."""

CLIP_NORM = 0.1
VECTORS_AT_A_TIME = 1024
MAX_JUDGED = 10_000
"""Vectors by whose error the beginning and the end of training are compared."""

log = logging.getLogger(__name__)


class QincoNetwork(nn.Module):
    """Codewords f(z, x) of base codewords z and the vector x that was decoded so far, another f for each step.

    f(z, x) = z' + sum of residual blocks, z' = z + Linear([z; x]); a block is Linear, ReLU, Linear. The first step has
    nothing decoded before it and takes its codewords as they are. codebooks: (steps, codewords, size), where the base
    codewords start. Linear([z; x]) and the last layer of each block start from 0, so that f(z, x) = z.
    """

    def __init__(self, codebooks: Float32Array, *, blocks: int, width: int, seed: int) -> None:
        super().__init__()
        steps, _, size = codebooks.shape
        self.codebooks = nn.Parameter(torch.from_numpy(codebooks.copy()))
        self.joined = nn.Parameter(torch.zeros(steps - 1, 2 * size, size))
        self.widen = nn.Parameter(torch.empty(steps - 1, blocks, size, width))
        self.narrow = nn.Parameter(torch.zeros(steps - 1, blocks, width, size))
        with torch.no_grad():
            self.widen.normal_(0.0, (2 / size) ** 0.5, generator=torch.Generator().manual_seed(seed))

    def codewords(self, step: int, base: Tensor, decoded: Tensor) -> Tensor:
        """The codewords (rows, columns, size) of a step for base codewords of that shape; decoded: (rows, size)."""
        if step == 0:
            return base
        before = decoded.unsqueeze(1).expand_as(base)
        words = base + torch.cat([base, before], dim=-1) @ self.joined[step - 1]
        for widen, narrow in zip(self.widen[step - 1], self.narrow[step - 1], strict=True):
            words = words + functional.relu(words @ widen) @ narrow
        return words

    def partial_sums(self, codes: Tensor) -> list[Tensor]:
        """What codes (rows, steps) have decoded to after each step, (rows, size) each."""
        sums: list[Tensor] = []
        decoded = torch.zeros(len(codes), self.codebooks.shape[2])
        for step, codebook in enumerate(self.codebooks):
            # Unlike indexing, embedding adds the gradients of repeated codewords in a fixed order.
            base = functional.embedding(codes[:, step], codebook).unsqueeze(1)
            decoded = decoded + self.codewords(step, base, decoded).squeeze(1)
            sums.append(decoded)
        return sums

    @torch.no_grad()
    def choose(self, vectors: Tensor) -> Tensor:
        """Codes (rows, steps) of vectors (rows, size): at each step the candidate nearest to the residual."""
        codes: list[Tensor] = []
        decoded = torch.zeros_like(vectors)
        rows = torch.arange(len(vectors))
        for step, codebook in enumerate(self.codebooks):
            residual = vectors - decoded
            nearest = torch.cdist(residual, codebook).topk(min(CANDIDATES, len(codebook)), largest=False).indices
            words = self.codewords(step, codebook[nearest], decoded)
            best = (words - residual.unsqueeze(1)).square().sum(dim=2).argmin(dim=1)
            codes.append(nearest[rows, best])
            decoded = decoded + words[rows, best]
        return torch.stack(codes, dim=1)

    def encode(self, vectors: Float32Array) -> AnyArray:
        """Codes (items, steps), uint8, of vectors (items, size)."""
        parts = torch.from_numpy(vectors).split(VECTORS_AT_A_TIME)
        return np.concatenate([self.choose(part).numpy().astype(np.uint8) for part in parts])

    @torch.no_grad()
    def decode(self, codes: AnyArray) -> Float32Array:
        """Vectors (items, size) of codes (items, steps)."""
        parts = torch.from_numpy(codes.astype(np.int64)).split(VECTORS_AT_A_TIME)
        return np.concatenate([self.partial_sums(part)[-1].numpy() for part in parts])


def train_qinco(network: QincoNetwork, vectors: Float32Array, *, epochs: int, max_vectors: int, budget: Budget) -> None:
    """Learn the network: the sum over the steps of the squared error after each, codes chosen without gradient.

    Adam with cosine decay, for the epochs, or fewer where these would take more than max_vectors vectors altogether;
    from the same beginning with each of the learning rates, as long as the budget's seconds last. What decodes with the
    least error is kept, be it the beginning.
    """
    points = torch.from_numpy(vectors)
    judged = vectors[np.random.default_rng(budget.seed).permutation(len(vectors))[:MAX_JUDGED]]
    beginning = best = _state(network)
    least = squared_error(network, judged)
    for number, rate in enumerate(LEARNING_RATES):
        if number and budget.is_spent:
            break
        network.load_state_dict(beginning)
        _descend(network, points, learning_rate=rate, epochs=epochs, max_vectors=max_vectors, budget=budget)
        error = squared_error(network, judged)
        log.info("QINCo with learning rate %g: mean squared error %.3g, before or best so far %.3g", rate, error, least)
        if error < least:
            best, least = _state(network), error
    network.load_state_dict(best)


def _state(network: QincoNetwork) -> dict[str, Tensor]:
    return {name: array.clone() for name, array in network.state_dict().items()}


def squared_error(network: QincoNetwork, vectors: Float32Array) -> float:
    """Mean squared error of vectors (items, size) that are encoded and decoded again."""
    return float(np.square(network.decode(network.encode(vectors)) - vectors).mean())


def _descend(
    network: QincoNetwork, points: Tensor, *, learning_rate: float, epochs: int, max_vectors: int, budget: Budget
) -> None:
    """All steps with one learning rate."""
    batches_per_epoch = -(-len(points) // BATCH_SIZE)
    total = max(1, min(epochs * batches_per_epoch, max_vectors // BATCH_SIZE))
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, total)
    generator = torch.Generator().manual_seed(budget.seed)
    order = torch.empty(0, dtype=torch.int64)
    for step in range(total):
        if step % batches_per_epoch == 0:
            if step and budget.is_spent:
                return
            order = torch.randperm(len(points), generator=generator)
        budget.stop_if_asked()
        first = step % batches_per_epoch * BATCH_SIZE
        batch = points[order[first : first + BATCH_SIZE]]
        sums = network.partial_sums(network.choose(batch))
        loss = torch.stack([(batch - decoded).square().mean() for decoded in sums]).sum()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP_NORM)
        optimiser.step()
        decay.step()
