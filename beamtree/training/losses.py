"""The layer-wise softmax loss."""

from torch import Tensor


def sampled_softmax_loss(scores: Tensor, log_correction: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """Cross-entropy of column 0 against the other columns, corrected for how they were drawn (Eq. 20-21).

    scores, log_correction: (rows, columns), absent columns score -inf; weights: (rows,), the rectified labels.
    A row without negatives has loss 0. The mean runs over all rows, those of weight 0 included.
    """
    corrected = scores - log_correction
    losses = corrected.logsumexp(dim=1) - corrected[:, 0]
    return losses.mean() if weights is None else (weights * losses).mean()
