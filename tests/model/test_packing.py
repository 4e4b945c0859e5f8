"""Packed sequences: attention over them is that over each of them alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from beamtree.model.packing import MIN_ROW, Packing, attend

CPU = torch.device("cpu")
HEADS, SIZE, AGES = 2, 3, 40
WIDTH = HEADS * SIZE


def packing_of(lengths: list[int]) -> Packing:
    return Packing(np.array(lengths), device=CPU)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()


def attend_each(queries_keys_values: torch.Tensor, recency: torch.Tensor, *, lengths: list[int]) -> torch.Tensor:
    """One sequence after the other, each position over those up to it."""
    found = []
    for own in queries_keys_values.split(lengths):
        queries, keys, values = own.view(len(own), 3, HEADS, SIZE).unbind(dim=1)
        for place in range(len(own)):
            seen = slice(0, place + 1)
            scores = torch.einsum("hs,phs->hp", queries[place], keys[seen]) / SIZE**0.5
            shares = (scores + recency[:, : place + 1].flip(1)).softmax(dim=1)
            found.append(torch.einsum("hp,phs->hs", shares, values[seen]).flatten())
    return torch.stack(found)


@given(st.lists(st.integers(1, AGES), min_size=1, max_size=12))
def test_every_sequence_has_cells_of_its_own_side_by_side_in_a_row(lengths: list[int]) -> None:
    packing = packing_of(lengths)
    assert packing.row_length == max(MIN_ROW, *lengths)
    cells = packing.cells.split(lengths)
    assert len(torch.cat(cells).unique()) == sum(lengths)
    for own in cells:
        assert own.tolist() == list(range(int(own[0]), int(own[-1]) + 1))
        assert int(own[0]) // packing.row_length == int(own[-1]) // packing.row_length
    assert packing.positions.flatten()[packing.cells].tolist() == list(range(sum(lengths)))
    assert packing.positions.shape[0] <= len(lengths)


def test_short_sequences_stand_beside_long_ones() -> None:
    """Rows of 32: 30 and 2, 20 and 5 and 6."""
    packing = packing_of([30, 5, 20, 6, 2])
    assert packing.positions.shape == (2, 32)
    rows = [int(own[0]) // 32 for own in packing.cells.split([30, 5, 20, 6, 2])]
    assert rows == [0, 1, 1, 1, 0]


def test_the_latest_values_are_those_of_the_same_sequence() -> None:
    found = packing_of([2, 1, 3]).latest(torch.tensor([7, 8, 5, 0, 1, 2]))
    assert found.tolist() == [[7, -1, -1], [8, 7, -1], [5, -1, -1], [0, -1, -1], [1, 0, -1], [2, 1, 0]]


@pytest.mark.parametrize("lengths", [[1], [4, 4], [3, 1, 33, 2, 7, 5, 40], [1] * 50])
def test_attention_is_that_of_each_sequence_alone(lengths: list[int]) -> None:
    inputs, recency, weights = draw(sum(lengths), 3 * WIDTH), draw(HEADS, AGES, seed=1), draw(sum(lengths), WIDTH)
    ours = attend(inputs, recency, packing=packing_of(lengths))
    theirs = attend_each(inputs, recency, lengths=lengths)
    torch.testing.assert_close(ours, theirs)
    of_ours, of_theirs = (
        torch.autograd.grad((attended * weights).sum(), [inputs, recency]) for attended in (ours, theirs)
    )
    torch.testing.assert_close(of_ours, of_theirs)


def test_of_one_length_it_is_the_attention_of_torch() -> None:
    inputs, recency = draw(5 * 7, 3 * WIDTH), torch.zeros(HEADS, AGES, dtype=torch.float64)
    queries, keys, values = inputs.view(5, 7, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
    theirs = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    ours = attend(inputs, recency, packing=packing_of([7] * 5))
    torch.testing.assert_close(ours, theirs.transpose(1, 2).reshape(5 * 7, WIDTH))
