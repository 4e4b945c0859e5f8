"""Cross-entropy over very many items: over all of them, its gradients found on the way, or over a sample.

Scores (rows, items) are the largest thing in learning a model that scores all items. They are made a few rows at a time
in one buffer that is used again, and each becomes its own gradient in place: none is computed twice, none is kept.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

SCORES_AT_A_TIME = 2**22
"""Scores in memory together: 16 MB, which a processor's last cache holds."""


def softmax_loss(vectors: Tensor, items: Tensor, labels: Tensor) -> Tensor:
    """Sum over rows of the cross-entropy of labels (rows, targets) under softmax(vectors @ items.T).

    vectors: (rows, width); items: (items, width). A label of -1 is none; the labels of a row share it evenly.
    """
    loss: Tensor = _SoftmaxLoss.apply(vectors, items, labels)  # type: ignore[no-untyped-call]
    return loss


def sampled_softmax_loss(vectors: Tensor, items: Tensor, labels: Tensor, *, sample: Tensor) -> Tensor:
    """The same with a sample (drawn,) of distinct items in the place of all that are not labels of the row.

    Drawn uniformly, each stands for len(items) / len(sample) of them; a sample of all items gives the loss itself.
    """
    is_label = labels >= 0
    wanted = (vectors.unsqueeze(1) * functional.embedding(labels.clamp(min=0), items)).sum(dim=2)
    repeated = ((labels.unsqueeze(1) == labels.unsqueeze(2)) & is_label.unsqueeze(1)).sum(dim=2).clamp(min=1)
    others = vectors @ functional.embedding(sample, items).T + math.log(len(items) / len(sample))
    is_wanted = (labels.unsqueeze(2) == sample).any(dim=1)
    competing = torch.cat(
        [(wanted - repeated.log()).masked_fill(~is_label, -torch.inf), others.masked_fill(is_wanted, -torch.inf)], dim=1
    )
    likely = wanted.masked_fill(~is_label, 0.0).sum(dim=1) / is_label.sum(dim=1)
    return (competing.logsumexp(dim=1) - likely).sum()


class _SoftmaxLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        is_label = labels >= 0
        shares = is_label / is_label.sum(dim=1, keepdim=True).to(vectors.dtype)
        places = labels.clamp(min=0)
        at_a_time = max(1, SCORES_AT_A_TIME // len(items))
        buffer = vectors.new_empty(min(at_a_time, len(vectors)), len(items))
        d_vectors, d_items = torch.empty_like(vectors), torch.zeros_like(items)
        loss = vectors.new_zeros(())
        for first in range(0, len(vectors), at_a_time):
            part = slice(first, first + at_a_time)
            scores = torch.mm(vectors[part], items.T, out=buffer[: len(vectors[part])])
            loss -= (scores.gather(1, places[part]) * shares[part]).sum()
            highest = scores.max(dim=1, keepdim=True).values
            total = scores.sub_(highest).exp_().sum(dim=1, keepdim=True)
            loss += (highest + total.log()).sum()
            d_scores = scores.div_(total).scatter_add_(1, places[part], -shares[part])
            torch.mm(d_scores, items, out=d_vectors[part])
            d_items.addmm_(d_scores.T, vectors[part])
        ctx.save_for_backward(d_vectors, d_items)
        return loss

    @staticmethod
    def backward(ctx: Any, *d_loss: Tensor) -> tuple[Tensor, Tensor, None]:
        d_vectors, d_items = ctx.saved_tensors
        return d_loss[0] * d_vectors, d_loss[0] * d_items, None
