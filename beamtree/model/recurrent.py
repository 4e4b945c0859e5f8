"""GRU4Rec's encoder: a gated recurrent layer over a history (Hidasi, Karatzoglou, Baltrunas, Tikk, ICLR 2016)."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from beamtree.model.packing import Packing
from beamtree.model.sequence_encoder import Dropout, SequenceEncoder, keep


class Recurrent(SequenceEncoder):
    """A state that each item of the history changes, through gates; what comes next is a projection of the last one.

    hidden: size of the state; layers: the states of one are what the next one reads. An empty history has the state 0.
    """

    def __init__(self, width: int, *, hidden: int, layers: int, history_length: int) -> None:
        super().__init__()
        self.width, self.history_length = width, history_length
        self.gru = nn.GRU(width, hidden, num_layers=layers, batch_first=True)
        self.project = nn.Linear(hidden, width)
        # No weight has the size of a history, and whoever reads the stored state must know it.
        self.register_buffer("length", torch.tensor(history_length))

    def packed(self, vectors: Tensor, *, packing: Packing, dropout: Dropout = keep) -> Tensor:
        """As `SequenceEncoder.packed`."""
        by_place = functional.embedding(packing.by_place, dropout(vectors))
        states = self.gru(PackedSequence(by_place, packing.reaching))[0].data
        encoded: Tensor = self.project(dropout(states))
        return functional.embedding(packing.back, encoded)

    def expectation(self, vectors: Tensor, *, present: Tensor, dropout: Dropout = keep) -> Tensor:
        """As `SequenceEncoder.expectation`."""
        rows, positions, _ = vectors.shape
        lengths = present.sum(dim=1)
        # A recurrent network would read padding in front, so histories are moved to where they begin at 0.
        places = torch.arange(positions, device=vectors.device) + (positions - lengths).unsqueeze(1)
        moved = vectors.gather(1, places.clamp(max=positions - 1).unsqueeze(-1).expand_as(vectors))
        states, _ = self.gru(dropout(moved))
        last = states[torch.arange(rows, device=vectors.device), (lengths - 1).clamp(min=0)]
        encoded: Tensor = self.project(dropout(last * (lengths > 0).unsqueeze(1)))
        return encoded
