"""What usually came next: items scored by how often they followed those of the history, counted and nothing learned."""

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.data.sequences import Sequences, flatten_spans
from beamtree.data.split import Spans

WINDOW = 20
"""So many of the next interactions count as what followed an item."""
MOST_INTERACTIONS = 2_000_000
"""A log with more is counted in part, every n-th user, so that there are at most some 40 million pairs: 320 MB."""
FADING = 0.8
"""An item of the history counts so many times as much as the one after it."""

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class ItemToItem:
    """Scores of what may follow each item: a sparse matrix (items, items), the logarithm of one plus the count."""

    followers: Any
    history_length: int = WINDOW

    @classmethod
    def fit(cls, sequences: Sequences, spans: Spans, *, num_items: int) -> "ItemToItem":
        """Count what followed what inside the training spans; an item does not follow itself. Needs scikit-learn."""
        from scipy.sparse import csr_matrix

        some = slice(None, None, max(1, ceil((spans.end - spans.start).sum() / MOST_INTERACTIONS)))
        items, offsets = flatten_spans(sequences.items, starts=spans.start[some], ends=spans.end[some])
        left = np.repeat(offsets[1:], np.diff(offsets)) - np.arange(len(items))
        counts = csr_matrix((num_items, num_items), dtype=np.float32)
        for distance in range(1, WINDOW + 1):
            first = np.flatnonzero(left > distance)
            before, after = items[first], items[first + distance]
            is_other = before != after
            ones = np.ones(np.count_nonzero(is_other), dtype=np.float32)
            counts += csr_matrix((ones, (before[is_other], after[is_other])), shape=counts.shape)
        np.log1p(counts.data, out=counts.data)
        return cls(counts)

    def scores(self, histories: Int32Array) -> npt.NDArray[np.float32]:
        """(histories, items) for histories (histories, positions), oldest first, -1 in front."""
        from scipy.sparse import csr_matrix

        rows, positions = np.nonzero(histories >= 0)
        weights = np.float32(FADING) ** (histories.shape[1] - 1 - positions).astype(np.float32)
        shape = (len(histories), self.followers.shape[0])
        shown = csr_matrix((weights, (rows, histories[rows, positions])), shape=shape)
        scores: npt.NDArray[np.float32] = (shown @ self.followers).toarray()
        return scores
