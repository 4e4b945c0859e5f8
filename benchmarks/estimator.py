"""A step of learning SASRec on a large catalogue, against the same step written down plainly in torch.

python -m benchmarks.estimator --json

Plainly: every history padded to the full length, items looked up in the whole table wherever they are needed, the
scores of the sample kept for the way back, and torch's usual Adam.
"""

import argparse
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from beamtree.config import EstimatorSettings
from beamtree.model.proposal import Proposal
from beamtree.model.sequence_encoder import SasRec
from benchmarks.measure import report, take_turns

HISTORY_LENGTH = 69
SHORTEST, MEAN_BEYOND = 14, 13.0
"""Lengths of the windows: exponential beyond the shortest, about those of a log where most users have twenty items."""


def measure_estimator(*, items: int, negatives: int, turns: int) -> dict[str, float]:
    """Milliseconds per step both ways, and the speedup; both have the same loss."""
    settings = EstimatorSettings(negatives=negatives, dropout=0.0)
    histories, targets = _windows(settings.batch_size, items=items)
    proposal = Proposal.half_by_frequency(np.random.default_rng(0).zipf(1.5, size=items))
    plain, ours = (
        SasRec(settings, num_items=items, history_length=HISTORY_LENGTH, generator=torch.Generator().manual_seed(0))
        for _ in range(2)
    )

    def plain_loss() -> Tensor:
        vectors, labels = plain.encode(histories)[targets >= 0], targets[targets >= 0]
        sample, stand_for = proposal.draw(negatives)
        wanted = (vectors * functional.embedding(labels, plain.items)).sum(dim=1, keepdim=True)
        others = vectors @ functional.embedding(sample, plain.items).T + stand_for.float().log()
        scores = torch.cat([wanted, others.masked_fill(labels.unsqueeze(1) == sample, -torch.inf)], dim=1)
        return functional.cross_entropy(scores, torch.zeros_like(labels))

    torch.manual_seed(0)
    expected = plain_loss()
    torch.manual_seed(0)
    torch.testing.assert_close(ours.loss(histories, targets, proposal=proposal), expected)
    contestants = {
        "plain": _step(plain, plain_loss, torch.optim.AdamW(plain.parameters())),
        "ours": _step(
            ours,
            lambda: ours.loss(histories, targets, proposal=proposal),
            torch.optim.AdamW(ours.parameters(), fused=True),
        ),
    }
    best = {name: min(times) for name, times in take_turns(contestants, turns=turns).items()}
    return {
        "plain_ms_per_step": best["plain"] * 1e3,
        "ours_ms_per_step": best["ours"] * 1e3,
        "speedup": best["plain"] / best["ours"],
    }


def _step(model: SasRec, loss: Callable[[], Tensor], optimiser: torch.optim.Optimizer) -> Callable[[], None]:
    def step() -> None:
        optimiser.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()

    return step


def _windows(count: int, *, items: int) -> tuple[Tensor, Tensor]:
    """Random inputs and targets (count, length), -1 in front of both."""
    generator = torch.Generator().manual_seed(0)
    lengths = SHORTEST + torch.empty(count).exponential_(1 / MEAN_BEYOND, generator=generator)
    is_input = torch.arange(HISTORY_LENGTH, 0, -1) <= lengths.unsqueeze(1)
    drawn = torch.randint(items, (2, count, HISTORY_LENGTH), generator=generator)
    histories, targets = drawn.masked_fill(~is_input, -1)
    return histories, targets


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=184_530)
    parser.add_argument("--negatives", type=int, default=4096)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = measure_estimator(items=arguments.items, negatives=arguments.negatives, turns=arguments.turns)
    report({"items": arguments.items, "negatives": arguments.negatives}, results, as_json=arguments.json)


if __name__ == "__main__":
    main()
