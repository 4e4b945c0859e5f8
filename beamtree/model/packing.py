"""Sequences of different lengths laid end to end, so that everything but attention works on one matrix without padding.

For attention they are laid in rows of one length, a long one together with short ones, and a position sees what came
before it in its own sequence alone. One product of matrices per row and head is all there is, however short they are.
"""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from beamtree.types import Int64Array

MIN_ROW = 32
"""Rows are not shorter than this: many small products of matrices take longer than fewer ones with more to mask."""


class Packing:
    """The layout of sequences of `lengths` (sequences,), each at least 1, in a matrix with a row for each position.

    device: that of the matrix.
    """

    def __init__(self, lengths: Int64Array, *, device: torch.device) -> None:
        self.lengths = lengths
        self.device = device

    @cached_property
    def row_length(self) -> int:
        """Positions of a row of attention."""
        return max(MIN_ROW, int(self.lengths.max()))

    def latest(self, values: Tensor) -> Tensor:
        """Of values (positions,) that are not negative: what each position and those before it in its sequence have.

        (positions, longest sequence), the position's own first, -1 where there are no more.
        """
        ages = torch.arange(int(self.lengths.max()), device=self.device)
        before = torch.from_numpy(self._inside).to(self.device).unsqueeze(1) - ages
        where = torch.arange(len(values), device=self.device).unsqueeze(1) - ages
        return torch.where(before >= 0, values[where.clamp(min=0)], -1)

    @cached_property
    def by_place(self) -> Tensor:
        """The positions (positions,) in the order in which a recurrent network reads them.

        All first ones of the sequences, the longest one's first, then all second ones, and so on.
        """
        return torch.from_numpy(self._by_place).to(self.device)

    @cached_property
    def back(self) -> Tensor:
        """Where in the order of `by_place` each position (positions,) stands."""
        back = np.empty_like(self._by_place)
        back[self._by_place] = np.arange(len(back))
        return torch.from_numpy(back).to(self.device)

    @cached_property
    def reaching(self) -> Tensor:
        """How many sequences have a first, a second, ... position; on the CPU."""
        return torch.from_numpy(np.bincount(self._inside))

    @cached_property
    def cells(self) -> Tensor:
        """The flat index of each position (positions,) in the rows of attention."""
        return torch.from_numpy(self._cells).to(self.device)

    @cached_property
    def positions(self) -> Tensor:
        """The position in each cell (rows, row length); any position in vacant cells."""
        positions = np.zeros(self._num_rows * self.row_length, dtype=np.int64)
        positions[self._cells] = np.arange(len(self._cells))
        return torch.from_numpy(positions).view(-1, self.row_length).to(self.device)

    @cached_property
    def masks(self) -> Tensor:
        """What is added to scores of attention, (rows, row length, row length): 0 where a cell sees another.

        It sees itself and what came before it in the same sequence; a vacant one those before it.
        """
        sequence = np.full(self._num_rows * self.row_length, -1)
        sequence[self._cells] = np.repeat(np.arange(len(self.lengths)), self.lengths)
        number = torch.from_numpy(sequence).view(-1, self.row_length).to(self.device)
        is_hidden = (number.unsqueeze(2) != number.unsqueeze(1)) | _ages(self.row_length, device=self.device).lt(0)
        return torch.zeros(is_hidden.shape, device=self.device).masked_fill_(is_hidden, -torch.inf)

    @cached_property
    def _cells(self) -> Int64Array:
        row, column = self._placement
        cells: Int64Array = np.repeat(row * self.row_length + column, self.lengths) + self._inside
        return cells

    @cached_property
    def _by_place(self) -> Int64Array:
        longest_first = np.argsort(-self.lengths, kind="stable")
        rank = np.empty_like(longest_first)
        rank[longest_first] = np.arange(len(rank))
        by_place: Int64Array = np.lexsort((np.repeat(rank, self.lengths), self._inside))
        return by_place

    @cached_property
    def _inside(self) -> Int64Array:
        """How many positions come before each one in its sequence."""
        starts = np.cumsum(self.lengths) - self.lengths
        inside: Int64Array = np.arange(self.lengths.sum()) - np.repeat(starts, self.lengths)
        return inside

    @cached_property
    def _num_rows(self) -> int:
        return int(self._placement[0].max()) + 1

    @cached_property
    def _placement(self) -> tuple[Int64Array, Int64Array]:
        """The row of each sequence, and where in it that begins: the longest one first, then as many short as fit."""
        row, column = np.empty((2, len(self.lengths)), dtype=np.int64)
        by_length = np.argsort(self.lengths, kind="stable").tolist()
        lengths, room = self.lengths.tolist(), self.row_length
        shortest, longest, number = 0, len(lengths) - 1, 0
        while shortest <= longest:
            own = by_length[longest]
            row[own], column[own], used = number, 0, lengths[own]
            longest -= 1
            while shortest <= longest and used + lengths[by_length[shortest]] <= room:
                own = by_length[shortest]
                row[own], column[own], used = number, used, used + lengths[own]
                shortest += 1
            number += 1
        return row, column


def attend(queries_keys_values: Tensor, recency: Tensor, *, packing: Packing) -> Tensor:
    """Causal attention within each of the packed sequences: (positions, width) from (positions, 3 * width).

    recency: (heads, ages), a bias by the distance between two positions; at least as many ages as the longest sequence
    has positions.
    """
    ages = _ages(packing.row_length, device=packing.device).clamp(0, recency.shape[1] - 1)
    # Unlike indexing, embedding adds the gradients of repeated rows in a fixed order.
    added = functional.embedding(ages, recency.T).permute(2, 0, 1)
    attended: Tensor = _Attention.apply(queries_keys_values, added, packing)  # type: ignore[no-untyped-call]
    return attended


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries_keys_values: Tensor, added: Tensor, packing: Packing) -> Tensor:
        """added: (heads, row length, row length)."""
        heads, length, _ = added.shape
        rows, width = len(packing.positions), queries_keys_values.shape[1] // 3
        laid = functional.embedding(packing.positions, queries_keys_values).view(rows, length, 3, heads, -1)
        queries, keys, values = laid.permute(2, 0, 3, 1, 4).reshape(3, rows * heads, length, -1)
        scale = queries.shape[-1] ** -0.5
        scores = torch.bmm(queries.mul_(scale), keys.transpose(1, 2)).view(rows, heads, length, length)
        shares = scores.add_(added).add_(packing.masks.unsqueeze(1).to(scores.dtype)).softmax(dim=3)
        attended = torch.bmm(shares.view(-1, length, length), values)
        ctx.save_for_backward(queries, keys, values, shares)
        ctx.packing = packing
        return functional.embedding(packing.cells, _side_by_side(attended, rows=rows).view(-1, width))

    @staticmethod
    def backward(ctx: Any, *d_attended: Tensor) -> tuple[Tensor, Tensor, None]:
        queries, keys, values, shares = ctx.saved_tensors
        rows, heads, length, _ = shares.shape
        packing: Packing = ctx.packing
        # A vacant cell shows some other position: what it attends to counts for nothing.
        laid = d_attended[0].new_zeros(rows * length, d_attended[0].shape[1])
        laid[packing.cells] = d_attended[0]
        d_values_of = laid.view(rows, length, heads, -1).transpose(1, 2).reshape(rows * heads, length, -1)
        d_shares = torch.bmm(d_values_of, values.transpose(1, 2)).view_as(shares)
        d_scores = torch._softmax_backward_data(d_shares, shares, 3, shares.dtype).view(-1, length, length)
        scale = queries.shape[-1] ** -0.5
        found = queries.new_empty(3, *queries.shape)
        torch.bmm(d_scores, keys, out=found[0]).mul_(scale)
        torch.bmm(d_scores.transpose(1, 2), queries, out=found[1])
        torch.bmm(shares.view(-1, length, length).transpose(1, 2), d_values_of, out=found[2])
        by_cell = found.view(3, rows, heads, length, -1).permute(1, 3, 0, 2, 4).reshape(rows * length, -1)
        d_added = d_scores.view(rows, heads, length, length).sum(dim=0)
        return functional.embedding(packing.cells, by_cell), d_added, None


def _side_by_side(by_head: Tensor, *, rows: int) -> Tensor:
    """(rows, length, heads * size) from (rows * heads, length, size)."""
    _, length, size = by_head.shape
    return by_head.view(rows, -1, length, size).transpose(1, 2).reshape(rows, length, -1)


def _ages(length: int, *, device: torch.device) -> Tensor:
    """How many places before one position (rows) another one (columns) stands, negative if after it."""
    place = torch.arange(length, device=device)
    return place[:, None] - place
