"""A next-item model: an item embedding table and a sequence encoder, trained with a softmax over the items.

It is the estimator of rectified labels, and the tower of the score is built from it. With self-attention it is SASRec,
with a recurrent network GRU4Rec.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from beamtree.config import EstimatorSettings
from beamtree.data.features import Features
from beamtree.data.requests import Requests
from beamtree.model.encoders import make_encoder
from beamtree.model.features import FeatureVectors, RequestVectors
from beamtree.model.item_softmax import WeighedTargets, item_softmax_loss, look_up
from beamtree.model.packing import Packing
from beamtree.model.proposal import Proposal
from beamtree.model.sequence_encoder import drop_out, initialise, keep
from beamtree.types import Float32Array, Int32Array, Int64Array

HISTORIES_AT_A_TIME = 512
"""Histories that are encoded together for scoring."""


NO_HISTORY_SHARE = 0.1
"""Share of the positions that are trained without their history if features of requests are read, so that these also
work for new users (DropoutNet: Volkovs, Yu, Poutanen, NeurIPS 2017)."""


class NextItemModel(nn.Module):
    """The history encoded; an item's score is the inner product of its own embedding with the result.

    content: what features add to the items' embeddings; None where they have none. offset: what features of users and
    contexts add to an encoded history; None where nothing is read of them.
    """

    def __init__(
        self,
        settings: EstimatorSettings,
        *,
        num_items: int,
        history_length: int,
        generator: torch.Generator,
        content: FeatureVectors | None = None,
        offset: RequestVectors | None = None,
    ) -> None:
        super().__init__()
        self.history_length = history_length
        self.items = nn.Parameter(torch.empty(num_items, settings.width))
        self.encoder = make_encoder(settings, history_length=history_length)
        self.dropout = settings.recipe.dropout
        self.negatives = settings.negatives_of(num_items)
        initialise(self, generator)
        self.offset = offset
        self.content = content

    def loss(
        self,
        inputs: Int32Array,
        targets: Int32Array | WeighedTargets,
        *,
        lengths: Int64Array,
        proposal: Proposal,
        generator: torch.Generator,
        seen_count: bool = True,
        user_features: Features | None = None,
        context: Features | None = None,
    ) -> Tensor:
        """Mean cross-entropy of the targets over all items or a sample.

        inputs: (positions,), histories laid end to end; targets: (positions, targets), which share the position evenly,
        -1 = none, except the first; lengths: (histories,). proposal: where a sample is drawn from; generator: for it
        and for dropout, on the model's device. seen_count: whether items of the history can be
        negatives too, if they are not targets. user_features: (histories,) rows; context: (positions,) rows, that of
        the next interaction.
        """
        packing = Packing(lengths, device=self.items.device)
        dropout = keep
        if self.training and self.dropout > 0.0:
            dropout = partial(drop_out, share=self.dropout, generator=generator)

        def encode(vectors: Tensor) -> Tensor:
            encoded = self.encoder.packed(vectors, packing=packing, dropout=dropout)
            if self.offset is None:
                return encoded
            if self.training:
                encoded = self._without_some_histories(encoded, generator=generator)
            repeats = torch.from_numpy(lengths).to(encoded.device)
            added: Tensor = self.offset(encoded, user=user_features, context=context, repeats=repeats)
            return added

        return item_softmax_loss(
            self.items,
            inputs,
            targets,
            encode=encode,
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

    def scores(self, histories: Int32Array) -> Float32Array:
        """Scores (histories, items); a history shorter than `history_length` is padded in front with -1."""
        return self._scores(histories, None)

    def scores_of(self, requests: Requests) -> Float32Array:
        """Scores (requests, items), by histories and by features of users and contexts."""
        return self._scores(requests.histories.latest(self.history_length), self._offsets(requests))

    def expectations(self, histories: Int32Array) -> Float32Array:
        """What comes after each history (histories, width), padded as for `scores`."""
        return self._all_expectations(histories, None)

    def expectations_of(self, requests: Requests) -> Float32Array:
        """What each request expects (requests, width), as for `scores_of`."""
        return self._all_expectations(requests.histories.latest(self.history_length), self._offsets(requests))

    @torch.no_grad()
    def _scores(self, histories: Int32Array, offsets: Float32Array | None) -> Float32Array:
        table = self.table()
        scores = np.empty((len(histories), len(table)), dtype=np.float32)
        for rows, expected in self._expectations(histories, offsets):
            scores[rows] = (expected @ table.T).cpu().numpy()
        return scores

    @torch.no_grad()
    def _all_expectations(self, histories: Int32Array, offsets: Float32Array | None) -> Float32Array:
        expectations = np.empty((len(histories), self.items.shape[1]), dtype=np.float32)
        for rows, expected in self._expectations(histories, offsets):
            expectations[rows] = expected.cpu().numpy()
        return expectations

    def _offsets(self, requests: Requests) -> Float32Array | None:
        """What is added to the encoded histories, as the tower of a score does it."""
        return None if self.offset is None else self.offset.arrays().offsets(requests)

    def _without_some_histories(self, encoded: Tensor, *, generator: torch.Generator) -> Tensor:
        """Encodings of positions (positions, width), a share of them with an empty history."""
        nothing = encoded.new_zeros(1, 1, encoded.shape[1])
        absent = torch.zeros(1, 1, dtype=torch.bool, device=encoded.device)
        drawn = torch.rand(len(encoded), 1, generator=generator, device=encoded.device)
        return torch.where(drawn < NO_HISTORY_SHARE, self.encoder.expectation(nothing, present=absent), encoded)

    def _expectations(self, histories: Int32Array, offsets: Float32Array | None) -> Iterator[tuple[slice, Tensor]]:
        """Some rows of the histories at a time, and what comes after each of these (rows, width).

        offsets: (histories, width), added to that, None = nothing.
        """
        was_training, table = self.training, self.table()
        self.eval()
        try:
            for first in range(0, len(histories), HISTORIES_AT_A_TIME):
                rows = slice(first, first + HISTORIES_AT_A_TIME)
                latest = np.ascontiguousarray(histories[rows, -self.history_length :])
                part = torch.from_numpy(latest).to(self.items.device, torch.int64)
                # All of one width, whatever their lengths: a row's last bits must not depend on the rows beside it.
                expected = self.encoder.expectation(look_up(part, table), present=part >= 0)
                if offsets is not None:
                    expected = expected + torch.from_numpy(offsets[rows]).to(expected.device)
                yield rows, expected
        finally:
            self.train(was_training)

    def table(self) -> Tensor:
        """The vectors of all items (items, width), what their features add included."""
        return self.items if self.content is None else self.items + self.content()

    def item_vectors(self) -> Float32Array:
        """The same as an array, without a gradient."""
        result: Float32Array = self.table().detach().cpu().numpy()
        return result
