"""Cross-entropy over very many items: over all of them, or over a sample; its gradients are found on the way.

Scores (rows, items) are the largest thing in learning a model that scores all items. They are made a few rows at a time
in a buffer that is used again, and become their own gradients, those of the labels included, before the next rows: none
is computed twice, none is kept.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

SCORES_AT_A_TIME = 2**18
"""Scores in memory together on a CPU: 1 MB, and as many probabilities, which stay near its core."""

SCORES_ON_AN_ACCELERATOR = 2**24


def softmax_loss(
    vectors: Tensor, items: Tensor, labels: Tensor, *, left_out: Tensor | None = None, shares: Tensor | None = None
) -> Tensor:
    """Sum over rows of the cross-entropy of labels (rows, targets) under softmax(vectors @ items.T).

    vectors: (rows, width); items: (items, width). A label of -1 is none, except the first. shares: (rows, targets),
    what each label counts, 0 where there is none; None: the labels of a row share it evenly. left_out: (rows, some)
    items that the row does not compete with, -1 = none; a label competes anyway.
    """
    total: Tensor = _OverAll.apply(vectors, items, labels, left_out, shares)  # type: ignore[no-untyped-call]
    return total


def sampled_softmax_loss(
    vectors: Tensor,
    items: Tensor,
    labels: Tensor,
    *,
    sample: Tensor,
    stand_for: Tensor,
    left_out: Tensor | None = None,
    shares: Tensor | None = None,
) -> Tensor:
    """The same with a sample (drawn,) of distinct items as the negatives.

    stand_for: (drawn,), importance weights; all items with weights of 1 give the full softmax.
    """
    place = sample.new_full((len(items),), -1)
    place[sample] = torch.arange(len(sample), device=sample.device)
    known = labels if left_out is None else torch.cat([labels, left_out], dim=1)
    drawn = torch.where(known >= 0, place[known.clamp(min=0)], -1)
    log_stand_for = stand_for.log().to(vectors.dtype)
    total: Tensor = _OverSample.apply(  # type: ignore[no-untyped-call]
        vectors, items, labels, sample, log_stand_for, drawn, shares
    )
    return total


class _OverAll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, vectors: Tensor, items: Tensor, labels: Tensor, left_out: Tensor | None, given: Tensor | None
    ) -> Tensor:
        labels, shares = _filled(labels, given, dtype=vectors.dtype)
        totals = None if given is None else shares.sum(dim=1, keepdim=True)
        if left_out is not None:
            left_out = torch.where(left_out < 0, labels[:, :1], left_out)
        blocks = _Blocks(vectors, columns=len(items))
        d_vectors, d_items = torch.empty_like(vectors), torch.zeros_like(items)
        loss = vectors.new_zeros(())
        for rows in blocks.slices:
            part, own_labels, own_shares = vectors[rows], labels[rows], shares[rows]
            scores = torch.mm(part, items.T, out=blocks.scores(rows))
            wanted = scores.gather(1, own_labels)
            if left_out is not None:
                scores.scatter_(1, left_out[rows], -torch.inf).scatter_(1, own_labels, wanted)
            chances, log_total = blocks.softmax(rows, totals)
            loss += log_total.sum() - (own_shares * wanted).sum()
            d_scores = chances.scatter_add_(1, own_labels, -own_shares)
            torch.mm(d_scores, items, out=d_vectors[rows])
            d_items.addmm_(d_scores.T, part)
        ctx.save_for_backward(d_vectors, d_items)
        return loss

    @staticmethod
    def backward(ctx: Any, *d_loss: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        d_vectors, d_items = ctx.saved_tensors
        return d_loss[0] * d_vectors, d_loss[0] * d_items, None, None, None


class _OverSample(torch.autograd.Function):
    """Columns of the scores: the sample, then the labels of the row; left_out: (rows, some) columns of the sample."""

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        items: Tensor,
        labels: Tensor,
        sample: Tensor,
        log_stand_for: Tensor,
        left_out: Tensor,
        given: Tensor | None,
    ) -> Tensor:
        is_label, size = labels >= 0, len(sample)
        labels, shares = _filled(labels, given, dtype=vectors.dtype)
        totals = None if given is None else shares.sum(dim=1, keepdim=True)
        repeated = ((labels.unsqueeze(1) == labels.unsqueeze(2)) & is_label.unsqueeze(1)).sum(dim=2)
        penalty = repeated.to(vectors.dtype).log_().masked_fill_(~is_label, torch.inf)
        left_out = torch.where(left_out < 0, size, left_out)  # that of the first label, which is written afterwards
        drawn = functional.embedding(sample, items)
        blocks = _Blocks(vectors, columns=size + labels.shape[1])
        d_vectors, d_drawn, d_items = torch.empty_like(vectors), torch.zeros_like(drawn), torch.zeros_like(items)
        loss = vectors.new_zeros(())
        for rows in blocks.slices:
            part, own_shares = vectors[rows], shares[rows]
            near = functional.embedding(labels[rows], items)
            wanted = torch.bmm(near, part.unsqueeze(2)).squeeze(2)
            scores = blocks.scores(rows)
            torch.addmm(log_stand_for, part, drawn.T, out=scores[:, :size])
            scores.scatter_(1, left_out[rows], -torch.inf)
            torch.sub(wanted, penalty[rows], out=scores[:, size:])
            chances, log_total = blocks.softmax(rows, totals)
            loss += log_total.sum() - (own_shares * wanted).sum()
            d_scores, d_wanted = chances[:, :size], chances[:, size:].sub_(own_shares)
            torch.mm(d_scores, drawn, out=d_vectors[rows])
            d_vectors[rows].unsqueeze(1).baddbmm_(d_wanted.unsqueeze(1), near)
            d_drawn.addmm_(d_scores.T, part)
            near = torch.mul(d_wanted.unsqueeze(2), part.unsqueeze(1), out=near)
            d_items.index_add_(0, labels[rows].flatten(), near.flatten(0, 1))
        ctx.save_for_backward(d_vectors, d_items.index_add_(0, sample, d_drawn))
        return loss

    @staticmethod
    def backward(ctx: Any, *d_loss: Tensor) -> tuple[Tensor, Tensor, None, None, None, None, None]:
        d_vectors, d_items = ctx.saved_tensors
        return d_loss[0] * d_vectors, d_loss[0] * d_items, None, None, None, None, None


class _Blocks:
    """Buffers for the scores and the probabilities of a few of the rows at a time."""

    def __init__(self, vectors: Tensor, *, columns: int) -> None:
        scores = SCORES_AT_A_TIME if vectors.device.type == "cpu" else SCORES_ON_AN_ACCELERATOR
        at_a_time = min(len(vectors), max(1, scores // columns))
        self._scores: Tensor = vectors.new_empty(at_a_time, columns)
        self._chances = torch.empty_like(self._scores)
        self.slices = [
            slice(first, min(first + at_a_time, len(vectors))) for first in range(0, len(vectors), at_a_time)
        ]

    def scores(self, rows: slice) -> Tensor:
        """Room for the scores of rows."""
        return self._scores[: rows.stop - rows.start]

    def softmax(self, rows: slice, totals: Tensor | None) -> tuple[Tensor, Tensor]:
        """Of the scores that were put there, (rows, columns), and their log-sum-exp (rows,).

        totals: (all rows, 1), what both are multiplied by; None: nothing.
        """
        scores = self.scores(rows)
        chances = torch.softmax(scores, dim=1, out=self._chances[: len(scores)])
        # The largest probability is not small, so the logarithm loses nothing.
        log_total = scores.amax(dim=1) - chances.amax(dim=1).log_()
        if totals is None:
            return chances, log_total
        return chances.mul_(totals[rows]), log_total * totals[rows, 0]


def _filled(labels: Tensor, given: Tensor | None, *, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Labels with the first of the row where there is none, and what share of the row each of them has."""
    is_label = labels >= 0
    shares = is_label.to(dtype) / is_label.sum(dim=1, keepdim=True) if given is None else given.to(dtype)
    return torch.where(is_label, labels, labels[:, :1]), shares
