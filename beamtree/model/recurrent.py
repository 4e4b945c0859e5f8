"""GRU4Rec's encoder: a gated recurrent layer over a history (Hidasi, Karatzoglou, Baltrunas, Tikk, ICLR 2016)."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from beamtree.model.packing import Packing
from beamtree.model.sequence_encoder import Dropout, SequenceEncoder, keep


class Recurrent(SequenceEncoder):
    """Gated recurrent layers with a residual connection from the latest item, and layer norms before and after.

    The residual matters on sparse logs, where what goes with the latest item is most of what can be learned. hidden:
    size of the state; layers: stacked, each reads the states of the one before. An empty history has a state of zeros
    and no residual.
    """

    def __init__(self, width: int, *, hidden: int, layers: int, history_length: int) -> None:
        super().__init__()
        self.width, self.history_length = width, history_length
        self.input_norm: nn.Module = nn.LayerNorm(width)
        self.gru = nn.GRU(width, hidden, num_layers=layers, batch_first=True)
        self.project = nn.Linear(hidden, width)
        self.final_norm: nn.Module = nn.LayerNorm(width)
        # No weight has the length of a history as its size, so it is stored as a buffer.
        self.register_buffer("length", torch.tensor(history_length))

    @torch.no_grad()
    def compact(self) -> None:
        """As `SequenceEncoder.compact`: what the state changes itself by is rounded to 16 bits.

        A request reads these numbers again at each item of its history, and half of them fit the nearest cache.
        """
        for name, weights in self.gru.named_parameters():
            if name.startswith("weight_hh"):
                weights.copy_(weights.to(torch.bfloat16))

    def packed(self, vectors: Tensor, *, packing: Packing, dropout: Dropout = keep) -> Tensor:
        """As `SequenceEncoder.packed`."""
        by_place = functional.embedding(packing.by_place, vectors)
        read = dropout(self.input_norm(by_place))
        states = self.gru(PackedSequence(read, packing.reaching))[0].data
        return functional.embedding(packing.back, self.encoded(by_place, states, dropout=dropout))

    def expectation(self, vectors: Tensor, *, present: Tensor, dropout: Dropout = keep) -> Tensor:
        """As `SequenceEncoder.expectation`."""
        rows, positions, _ = vectors.shape
        lengths = present.sum(dim=1)
        # A recurrent network would read padding in front, so histories are moved to where they begin at 0.
        places = torch.arange(positions, device=vectors.device) + (positions - lengths).unsqueeze(1)
        moved = vectors.gather(1, places.clamp(max=positions - 1).unsqueeze(-1).expand_as(vectors))
        states, _ = self.gru(dropout(self.input_norm(moved)))
        row, last, is_any = torch.arange(rows, device=vectors.device), (lengths - 1).clamp(min=0), lengths > 0
        # Not multiplied by 0: there may be anything in the place of an item that is absent.
        latest, state = (
            torch.where(is_any.unsqueeze(1), of_all[row, last], torch.zeros_like(of_all[:, 0]))
            for of_all in (moved, states)
        )
        return self.encoded(latest, state, dropout=dropout)

    def encoded(self, latest: Tensor, states: Tensor, *, dropout: Dropout) -> Tensor:
        """(n, width) from the vectors of latest items (n, width) and the states after these (n, hidden)."""
        encoded: Tensor = self.final_norm(latest + self.project(dropout(states)))
        return encoded
