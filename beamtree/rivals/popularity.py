"""What everybody likes: the items with most training interactions, the same for all but what each has seen."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from beamtree.data.sequences import Sequences, flatten_spans
from beamtree.data.split import Spans
from beamtree.errors import InputError

NOTHING = -1


@dataclass(frozen=True, eq=False)
class Popularity:
    """Items ranked by their number of training interactions.

    counts (items,): interactions of each item in the training spans.
    ranking (items,): all items, most interactions first, the lower item id first among equals.
    """

    counts: NDArray[np.int64]
    ranking: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        counts = np.array(self.counts, dtype=np.int64)
        ranking = np.argsort(-counts, kind="stable")
        for array in (counts, ranking):
            array.setflags(write=False)
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "ranking", ranking)

    @classmethod
    def fit(cls, sequences: Sequences, spans: Spans, *, num_items: int) -> "Popularity":
        """Count the items inside the training spans; what lies outside them has no influence."""
        items, _ = flatten_spans(sequences.items, starts=spans.start, ends=spans.end)
        if items.size and items.max() >= num_items:
            raise InputError(
                f"Expected items below num_items = {num_items}, got item {items.max()} in the training set. "
                "Give the number of items of the data set."
            )
        return cls(np.bincount(items, minlength=num_items))

    def recommend(
        self, k: int, *, num_users: int, seen: tuple[NDArray[np.int32], NDArray[np.int64]] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k most popular items for each user, as items and scores (users, k), best first.

        seen: (flat, offsets), offsets (users + 1,), what each user must not get again; repeats and -1 are fine.
        The score is the number of training interactions. Where a user has fewer than k items left, item -1 and score
        -inf follow.
        """
        if k < 1 or num_users < 0:
            raise InputError(f"Expected k of 1 or more for 0 users or more, got k = {k} for {num_users} users.")
        places = np.broadcast_to(np.arange(min(k, self.counts.size)), (num_users, min(k, self.counts.size)))
        ranks = places if seen is None else self._ranks_of_unseen(places, seen=seen)
        items = np.full((num_users, k), NOTHING, dtype=np.int32)
        scores = np.full((num_users, k), -np.inf, dtype=np.float32)
        rows, columns = np.nonzero(ranks < self.counts.size)
        items[rows, columns] = self.ranking[ranks[rows, columns]]
        scores[rows, columns] = self.counts[items[rows, columns]]
        return items, scores

    def _ranks_of_unseen(
        self, places: NDArray[np.int64], *, seen: tuple[NDArray[np.int32], NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """The rank of the m-th unseen item for each place m (users, places).

        If s_0 < s_1 < ... are the ranks of a user's seen items, s_i has s_i - i unseen items before it, and so the m-th
        unseen item has before it exactly the seen items with s_i - i <= m.
        """
        num_users, num_items = len(places), self.counts.size
        seen_items, offsets = seen
        if offsets.shape != (num_users + 1,) or offsets[0] != 0 or offsets[-1] != seen_items.size:
            raise InputError(
                f"Expected offsets of seen items for {num_users} users from 0 to the {seen_items.size} items, "
                f"got {np.array2string(offsets, threshold=10)}."
            )
        if seen_items.size and (seen_items.min() < NOTHING or seen_items.max() >= num_items):
            raise InputError(
                f"Expected seen items from 0 to {num_items - 1} (or -1), got {seen_items.min()} to {seen_items.max()}."
            )
        rank_of_item = np.empty(num_items, dtype=np.int64)
        rank_of_item[self.ranking] = np.arange(num_items)
        user_starts = np.arange(num_users, dtype=np.int64) * num_items
        keys = np.repeat(user_starts, np.diff(offsets)) + rank_of_item[seen_items]
        keys = np.sort(keys[seen_items != NOTHING])
        keys = keys[np.diff(keys, prepend=-1) > 0]
        first_seen = np.searchsorted(keys, user_starts)
        unseen_before = keys - (np.arange(keys.size) - first_seen[keys // max(num_items, 1)])
        seen_before = np.searchsorted(unseen_before, user_starts[:, None] + places, side="right") - first_seen[:, None]
        return np.asarray(places + seen_before)
