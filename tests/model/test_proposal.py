"""Drawn negatives: as often as the proposal says, and standing for all items."""

import numpy as np
import pytest
import torch

from beamtree.model.proposal import Proposal


def test_half_of_the_draws_follow_the_counts() -> None:
    generator, proposal = torch.Generator().manual_seed(0), Proposal.half_by_frequency(np.array([0, 6, 2]))
    drawn = torch.cat([proposal.draw(1, generator=generator)[0] for _ in range(6000)])
    shares = torch.bincount(drawn, minlength=3) / len(drawn)
    assert shares.tolist() == pytest.approx([1 / 6, 3 / 8 + 1 / 6, 1 / 8 + 1 / 6], abs=0.02)


def test_what_is_drawn_stands_for_all_items() -> None:
    """Any sum over the items is met on average, whatever the shares; an item without a share counts for nothing."""
    generator = torch.Generator().manual_seed(0)
    values = torch.tensor([3.0, 100.0, 1.0, 2.0, 5.0], dtype=torch.float64)
    proposal = Proposal(np.array([0.5, 0.0, 0.05, 0.15, 0.3]))
    sums = []
    for _ in range(4000):
        drawn, stand_for = proposal.draw(7, generator=generator)
        assert len(drawn.unique()) == len(drawn)
        sums.append((values[drawn] * stand_for).sum().item())
    assert sum(sums) / len(sums) == pytest.approx(11.0, rel=0.02)


def test_every_point_has_an_item_though_shares_add_up_to_a_little_less() -> None:
    drawn, _ = Proposal(np.full(3, 0.333)).draw(10_000, generator=torch.Generator().manual_seed(0))
    assert drawn.tolist() == [0, 1, 2]
