"""SASRec's encoder: self-attention over a history."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.errors import InputError
from beamtree.model.packing import Packing, attend
from beamtree.model.sequence_encoder import Dropout, SequenceEncoder, keep

LAST_POSITIONS = 8
"""Positions that the last block computes, where one is asked for: of fewer than four, torch attends in a way whose last
bits depend on where among the rows a history stands."""


class SelfAttention(SequenceEncoder):
    """Causal self-attention over vectors of history items with relative positions.

    `recency` of a block (heads, history length) is a bias by the distance between two items, so that what is learned at
    any position of a sequence applies at its end, where recommendations are made.
    InputError where the heads do not share the width evenly.
    """

    def __init__(self, width: int, *, history_length: int, layers: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise InputError(f"Expected heads that share the width of {width} evenly, got {heads}.")
        self.width, self.history_length = width, history_length
        self.layers = nn.ModuleList(_Block(width, heads=heads, history_length=history_length) for _ in range(layers))
        self.final_norm = nn.LayerNorm(width)

    def forward(self, vectors: Tensor, *, present: Tensor, last: int | None = None, dropout: Dropout = keep) -> Tensor:
        """The encoding of each position, (rows, positions, width), for vectors (rows, positions, width).

        present: (rows, positions), False where there is no item; vectors there are masked.
        last: number of latest positions to return.
        """
        length = vectors.shape[1]
        asked = length if last is None else last
        hidden = dropout(vectors * present.unsqueeze(-1))
        place = torch.arange(length, device=vectors.device)
        age = place[:, None] - place
        visible = (age >= 0) & present.unsqueeze(1) | (age == 0)
        for number, layer in enumerate(self.layers, start=1):
            wanted = asked if number == len(self.layers) else length
            hidden = layer(hidden, visible=visible, age=age.clamp(min=0), last=wanted, dropout=dropout)
        encoded: Tensor = self.final_norm(hidden)
        return encoded

    def packed(self, vectors: Tensor, *, packing: Packing, dropout: Dropout = keep) -> Tensor:
        """`forward` for packed sequences: all positions (positions, width) from vectors (positions, width)."""
        hidden = dropout(vectors)
        for layer in self.layers:
            assert isinstance(layer, _Block)
            hidden = layer.packed(hidden, packing=packing, dropout=dropout)
        encoded: Tensor = self.final_norm(hidden)
        return encoded

    def expectation(self, vectors: Tensor, *, present: Tensor, dropout: Dropout = keep) -> Tensor:
        """What comes after each history (rows, width): the last position of `forward`."""
        last = min(LAST_POSITIONS, vectors.shape[1])
        encoded: Tensor = self(vectors, present=present, last=last, dropout=dropout)
        return encoded[:, -1]


class _Block(nn.Module):
    """Attention, then a small network, each normalised before and added to what came in."""

    def __init__(self, width: int, *, heads: int, history_length: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.recency = nn.Parameter(torch.empty(heads, history_length))
        self.merge = nn.Linear(width, width)
        self.network_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, hidden: Tensor, *, visible: Tensor, age: Tensor, last: int, dropout: Dropout) -> Tensor:
        """The `last` positions of hidden (rows, positions, width).

        visible: (rows, positions, positions), the attention mask; age: (positions, positions), distances.
        """
        rows, positions, width = hidden.shape
        parts = self.queries_keys_values(self.attention_norm(hidden)).reshape(rows, positions, 3, self.heads, -1)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        added = self.recency[:, age[-last:]].masked_fill(~visible[:, None, -last:], -torch.inf)
        attended = functional.scaled_dot_product_attention(queries[:, :, -last:], keys, values, attn_mask=added)
        merged = self.merge(attended.transpose(1, 2).reshape(rows, last, width))
        return self._network(hidden[:, -last:] + dropout(merged), dropout=dropout)

    def packed(self, hidden: Tensor, *, packing: Packing, dropout: Dropout) -> Tensor:
        """The same for all positions of packed sequences, (positions, width)."""
        attended = attend(self.queries_keys_values(self.attention_norm(hidden)), self.recency, packing=packing)
        return self._network(hidden + dropout(self.merge(attended)), dropout=dropout)

    def _network(self, hidden: Tensor, *, dropout: Dropout) -> Tensor:
        expanded = self.narrow(functional.gelu(self.widen(self.network_norm(hidden))))
        return hidden + dropout(expanded)
