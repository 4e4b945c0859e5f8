"""SASRec: self-attention over a history says what comes next, as a vector in the space of the items' own embeddings.

One encoder for all that read sequences: the tower of the score, and the estimator of rectified labels, which is the
encoder and a table of items, trained to tell the next item from all others.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.config import EstimatorSettings
from beamtree.errors import InputError
from beamtree.model.features import FeatureVectors
from beamtree.model.item_softmax import item_softmax_loss, look_up
from beamtree.model.packing import Packing, attend
from beamtree.model.proposal import Proposal
from beamtree.types import Float32Array, Int32Array, Int64Array

HISTORIES_AT_A_TIME = 512
"""Histories that are encoded together when scores are asked for; a small catalogue may want very many at once."""

LAST_POSITIONS = 8
"""Positions that the last block computes, where one is asked for: of fewer than four, torch attends in a way whose last
bits depend on where among the rows a history stands."""

STEEPEST_SLOPE, FLATTER = 0.3, 1 / 6
"""Before learning, an item loses so much attention of the first head with each place further back, and of each further
head that share of the one before."""

Dropout = Callable[[Tensor], Tensor]
"""Sets random numbers of a tensor to 0 and scales the others, or leaves it as it is."""


def keep(hidden: Tensor) -> Tensor:
    """No dropout."""
    return hidden


def drop_out(hidden: Tensor, *, share: float, generator: torch.Generator) -> Tensor:
    """Dropout of a share, rounded to one of 65,536 steps; the generator lives where hidden does.

    A quarter of a random integer decides each number, at a tenth of the cost of drawing a real number for it.
    """
    dropped = round(share * 2**16)
    drawn = torch.empty(-(-hidden.numel() // 4), dtype=torch.int64, device=hidden.device)
    drawn.random_(-(2**63), None, generator=generator)
    kept = drawn.view(torch.int16)[: hidden.numel()].view(hidden.shape) >= dropped - 2**15
    return hidden * kept.to(hidden.dtype).mul_(2**16 / (2**16 - dropped))


class SequenceEncoder(nn.Module):
    """Causal self-attention over vectors of history items, which knows by how many places one came before another.

    Places are relative: `recency` of a block (heads, history length) is added where an item looks at the one so many
    places before. So whatever is learned anywhere in a sequence holds at its end, where recommendations are asked for.
    Its numbers are undefined until `initialise` or a stored state sets them. InputError where the heads do not share
    the width evenly.
    """

    def __init__(self, width: int, *, history_length: int, layers: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise InputError(f"Expected heads that share the width of {width} evenly, got {heads}.")
        self.width, self.history_length = width, history_length
        self.layers = nn.ModuleList(_Block(width, heads=heads, history_length=history_length) for _ in range(layers))
        self.final_norm = nn.LayerNorm(width)

    def forward(self, vectors: Tensor, *, present: Tensor, last: int | None = None, dropout: Dropout = keep) -> Tensor:
        """What each position expects next, (rows, positions, width), for vectors (rows, positions, width).

        present: (rows, positions), False where there is no item; whatever vector is there, it is never looked at.
        last: only so many of the latest positions are asked for.
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


@torch.no_grad()
def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Random tables and matrices of rows of about unit length, biases of 0; norms stay as they are.

    The first head of each block begins by looking at the latest items, the others ever further back.
    """
    for name, parameter in module.named_parameters():
        if name.endswith("recency"):
            heads, length = parameter.shape
            slopes = STEEPEST_SLOPE * FLATTER ** torch.arange(heads, dtype=parameter.dtype)
            parameter.copy_(-slopes[:, None] * torch.arange(length, dtype=parameter.dtype))
        elif parameter.dim() > 1:
            parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator)
        elif "norm" not in name:
            parameter.zero_()


class SasRec(nn.Module):
    """Self-attention over the history; an item's score is the inner product of its own embedding with the result.

    content: what features add to the items' embeddings; None where they have none.
    """

    def __init__(
        self,
        settings: EstimatorSettings,
        *,
        num_items: int,
        history_length: int,
        generator: torch.Generator,
        content: FeatureVectors | None = None,
    ) -> None:
        super().__init__()
        self.history_length = history_length
        self.items = nn.Parameter(torch.empty(num_items, settings.width))
        self.encoder = SequenceEncoder(
            settings.width, history_length=history_length, layers=settings.layers, heads=settings.heads
        )
        self.dropout = settings.dropout
        self.negatives = settings.negatives_of(num_items)
        initialise(self, generator)
        self.content = content

    def loss(
        self,
        inputs: Int32Array,
        targets: Int32Array,
        *,
        lengths: Int64Array,
        proposal: Proposal,
        generator: torch.Generator,
        seen_count: bool = True,
    ) -> Tensor:
        """Mean cross-entropy of the targets over all items or a sample.

        inputs: (positions,), histories laid end to end; targets: (positions, targets), which share the position evenly,
        -1 = none, except the first; lengths: (histories,). proposal: where a sample is drawn from; generator: for it
        and for dropout, on the model's device. seen_count: whether targets are told from the position's own history
        too, as far as they are not in it themselves.
        """
        packing = Packing(lengths, device=self.items.device)
        dropout = keep
        if self.training and self.dropout > 0.0:
            dropout = partial(drop_out, share=self.dropout, generator=generator)
        return item_softmax_loss(
            self.items,
            inputs,
            targets,
            encode=partial(self.encoder.packed, packing=packing, dropout=dropout),
            left_out=None if seen_count else packing.latest,
            negatives=self.negatives,
            proposal=proposal,
            generator=generator,
            content=self.content,
        )

    @property
    def sparse_tables(self) -> tuple[str, ...]:
        """Names of the parameters of whose rows a loss reads only those that it meets."""
        return () if self.negatives is None else ("items",)

    @torch.no_grad()
    def scores(self, histories: Int32Array) -> Float32Array:
        """Scores (histories, items); a history shorter than `history_length` is padded in front with -1."""
        table = self.table()
        scores = np.empty((len(histories), len(table)), dtype=np.float32)
        for rows, expected in self._expectations(histories):
            scores[rows] = (expected @ table.T).cpu().numpy()
        return scores

    @torch.no_grad()
    def expectations(self, histories: Int32Array) -> Float32Array:
        """What comes after each history (histories, width), padded as for `scores`."""
        expectations = np.empty((len(histories), self.items.shape[1]), dtype=np.float32)
        for rows, expected in self._expectations(histories):
            expectations[rows] = expected.cpu().numpy()
        return expectations

    def _expectations(self, histories: Int32Array) -> Iterator[tuple[slice, Tensor]]:
        """Some rows of the histories at a time, and what comes after each of these (rows, width)."""
        was_training, table = self.training, self.table()
        self.eval()
        try:
            for first in range(0, len(histories), HISTORIES_AT_A_TIME):
                rows = slice(first, first + HISTORIES_AT_A_TIME)
                latest = np.ascontiguousarray(histories[rows, -self.history_length :])
                part = torch.from_numpy(latest).to(self.items.device, torch.int64)
                # All of one width, whatever their lengths: a row's last bits must not depend on the rows beside it.
                yield rows, self.encoder.expectation(look_up(part, table), present=part >= 0)
        finally:
            self.train(was_training)

    def table(self) -> Tensor:
        """The vectors of all items (items, width), what their features add included."""
        return self.items if self.content is None else self.items + self.content()

    def item_vectors(self) -> Float32Array:
        """The same as an array, without a gradient."""
        result: Float32Array = self.table().detach().cpu().numpy()
        return result


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

        visible: (rows, positions, positions), who sees whom; age: (positions, positions), how many places before.
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
