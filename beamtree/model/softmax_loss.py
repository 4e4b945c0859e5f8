"""Cross-entropy over very many items: over all of them, or over a sample; its gradients are found on the way.

Scores (rows, items) are the largest thing in learning a model that scores all items. They are made a few rows at a time
in one buffer that is used again, and each becomes its own gradient in place: none is computed twice, none is kept.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

SCORES_AT_A_TIME = 2**21
"""Scores in memory together: 8 MB, which a processor's last cache holds."""


def softmax_loss(vectors: Tensor, items: Tensor, labels: Tensor) -> Tensor:
    """Sum over rows of the cross-entropy of labels (rows, targets) under softmax(vectors @ items.T).

    vectors: (rows, width); items: (items, width). A label of -1 is none; the labels of a row share it evenly.
    """
    nothing = labels[:, :0]
    total = _log_total(
        vectors, items, bias=vectors.new_zeros(len(items)), own=nothing.to(vectors.dtype), left_out=nothing
    )
    return total - _mean_scores(_scores_of(labels, vectors, items), labels).sum()


def sampled_softmax_loss(
    vectors: Tensor, items: Tensor, labels: Tensor, *, sample: Tensor, stand_for: Tensor
) -> Tensor:
    """The same with a sample (drawn,) of distinct items in the place of all that are not labels of the row.

    stand_for: (drawn,), how many items each stands for; a sample of all items, each for itself, gives the loss itself.
    """
    is_label = labels >= 0
    wanted = _scores_of(labels, vectors, items)
    repeated = ((labels.unsqueeze(1) == labels.unsqueeze(2)) & is_label.unsqueeze(1)).sum(dim=2).clamp(min=1)
    own = (wanted - repeated.log()).masked_fill(~is_label, -torch.inf)
    place = sample.new_full((len(items),), -1)
    place[sample] = torch.arange(len(sample), device=sample.device)
    drawn_label = torch.where(is_label, place[labels.clamp(min=0)], -1)
    drawn = functional.embedding(sample, items)
    total = _log_total(vectors, drawn, bias=stand_for.to(vectors.dtype).log(), own=own, left_out=drawn_label)
    return total - _mean_scores(wanted, labels).sum()


def _scores_of(labels: Tensor, vectors: Tensor, items: Tensor) -> Tensor:
    """(rows, targets); that of no label means nothing."""
    return torch.bmm(functional.embedding(labels.clamp(min=0), items), vectors.unsqueeze(2)).squeeze(2)


def _mean_scores(scores: Tensor, labels: Tensor) -> Tensor:
    """Of the labels of each row, (rows,)."""
    is_label = labels >= 0
    return scores.masked_fill(~is_label, 0.0).sum(dim=1) / is_label.sum(dim=1)


def _log_total(vectors: Tensor, items: Tensor, *, bias: Tensor, own: Tensor, left_out: Tensor) -> Tensor:
    """Sum over rows of log(sum(exp(vectors @ items.T + bias)) + sum(exp(own))).

    bias: (items,), not learned; own: (rows, some) scores beside those of the items; left_out: (rows, some) items that
    do not count, -1 = none.
    """
    total: Tensor = _LogTotal.apply(vectors, items, bias, own, left_out)  # type: ignore[no-untyped-call]
    return total


class _LogTotal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, items: Tensor, bias: Tensor, own: Tensor, left_out: Tensor) -> Tensor:
        at_a_time = max(1, SCORES_AT_A_TIME // len(items))
        buffer = vectors.new_empty(min(at_a_time, len(vectors)), len(items))
        d_vectors, d_items, d_own = torch.empty_like(vectors), torch.zeros_like(items), torch.empty_like(own)
        log_total = vectors.new_zeros(())
        for first in range(0, len(vectors), at_a_time):
            part = slice(first, first + at_a_time)
            scores = torch.addmm(bias, vectors[part], items.T, out=buffer[: len(vectors[part])])
            row, column = (left_out[part] >= 0).nonzero(as_tuple=True)
            scores[row, left_out[part][row, column]] = -torch.inf
            highest = torch.cat([scores.amax(dim=1, keepdim=True), own[part]], dim=1).amax(dim=1, keepdim=True)
            d_own[part] = (own[part] - highest).exp_()
            total = scores.sub_(highest).exp_().sum(dim=1, keepdim=True) + d_own[part].sum(dim=1, keepdim=True)
            log_total += (highest + total.log()).sum()
            torch.mm(scores.div_(total), items, out=d_vectors[part])
            d_items.addmm_(scores.T, vectors[part])
            d_own[part] /= total
        ctx.save_for_backward(d_vectors, d_items, d_own)
        return log_total

    @staticmethod
    def backward(ctx: Any, *d_total: Tensor) -> tuple[Tensor, Tensor, None, Tensor, None]:
        d_vectors, d_items, d_own = ctx.saved_tensors
        return d_total[0] * d_vectors, d_total[0] * d_items, None, d_total[0] * d_own, None
