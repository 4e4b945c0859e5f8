"""Metrics of recommendations against the labels of users.

Per user and cutoff n, with hits = the distinct items among the first n recommended that are among the user's labels:
    precision  hits / n, also where fewer than n items could be recommended
    recall     hits / length of the label list; a label list with repeats counts each of them
    f          harmonic mean of the two for this user, 0 without a hit
    ndcg       sum over hits of 1 / log2(1 + rank), divided by that of a perfect list of min(n, distinct labels) hits
    hit_rate   1 with a hit, else 0
    mrr        1 / rank of the first hit, 0 without one
These are averaged over users. Over all users together:
    coverage        distinct items recommended / items of the catalogue
    distinct_lists  distinct lists / users, the order within a list ignored: near 0 when everybody gets the same
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from beamtree.errors import InputError
from beamtree.types import NOTHING, BoolArray, Float64Array, Int32Array, Int64Array

Labels = tuple[Int32Array, Int64Array]


@dataclass(frozen=True, eq=False, repr=False)
class Metrics(Mapping[str, float]):
    """Averages by name, such as metrics["recall@20"], in the order of the cutoffs.

    per_user: the same names, without coverage and distinct_lists, each with one number per user (users,).
    num_seen_labels: labels that did not count because they were seen before; num_left_out: users with no other labels.
    """

    averages: Mapping[str, float]
    per_user: Mapping[str, Float64Array]
    num_users: int
    num_seen_labels: int = 0
    num_left_out: int = 0

    def __getitem__(self, name: str) -> float:
        return self.averages[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.averages)

    def __len__(self) -> int:
        return len(self.averages)

    def __reduce__(self) -> tuple[type["Metrics"], tuple[object, ...]]:
        plain = dict(self.averages), dict(self.per_user)
        return Metrics, (*plain, self.num_users, self.num_seen_labels, self.num_left_out)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:.4f}" for name, value in self.averages.items())
        return f"Metrics({self.num_users:,} users: {shown})"


def measure(recommended: Int32Array, labels: Labels, *, num_items: int, cutoffs: Sequence[int] = (20, 40)) -> Metrics:
    """All metrics at every cutoff.

    recommended (users, columns): best first, -1 where there was nothing to recommend; columns >= every cutoff.
    labels: (flat, offsets), offsets (users + 1,): user u went on to flat[offsets[u] : offsets[u + 1]], one entry or
    more each; -1 is an item unknown to the model, which counts as missed.
    num_items: size of the catalogue. Raises InputError where these do not fit together.
    """
    _check(recommended, labels, num_items=num_items, cutoffs=cutoffs)
    num_users = len(recommended)
    label_items, offsets = labels
    num_labels = np.diff(offsets)
    is_known = label_items != NOTHING
    label_rows = np.repeat(np.arange(num_users), num_labels)
    known_keys = _distinct(_keys(label_items, rows=label_rows, num_items=num_items)[is_known])
    num_unknown = np.bincount(label_rows[~is_known], minlength=num_users)
    num_distinct = np.bincount(known_keys // num_items, minlength=num_users) + num_unknown

    recommended_keys = _keys(recommended, rows=np.arange(num_users)[:, None], num_items=num_items)
    is_hit = _first_occurrences(recommended) & _contains(known_keys, recommended_keys)
    per_user: dict[str, Float64Array] = {}
    averages: dict[str, float] = {}
    for cutoff in cutoffs:
        lists = recommended[:, :cutoff]
        of_cutoff = _per_user(is_hit[:, :cutoff], num_labels=num_labels, num_distinct=num_distinct)
        per_user |= {f"{name}@{cutoff}": values for name, values in of_cutoff.items()}
        averages |= {f"{name}@{cutoff}": float(values.mean()) for name, values in of_cutoff.items()}
        shown = np.bincount(lists[lists != NOTHING], minlength=num_items) > 0
        averages[f"coverage@{cutoff}"] = float(shown.mean())
        averages[f"distinct_lists@{cutoff}"] = len({row.tobytes() for row in np.sort(lists, axis=1)}) / num_users
    for values in per_user.values():
        values.setflags(write=False)
    return Metrics(MappingProxyType(averages), MappingProxyType(per_user), num_users)


def _per_user(is_hit: BoolArray, *, num_labels: Int64Array, num_distinct: Int64Array) -> dict[str, Float64Array]:
    """The metrics of each user from the hits by rank (users, cutoff)."""
    cutoff = is_hit.shape[1]
    hits = is_hit.sum(axis=1)
    any_hit = hits > 0
    gains = 1 / np.log2(np.arange(2, cutoff + 2))
    perfect_gains = np.cumsum(gains)[np.minimum(num_distinct, cutoff) - 1]
    first_rank = is_hit.argmax(axis=1) + 1
    return {
        "precision": hits / cutoff,
        "recall": hits / num_labels,
        # 2PR / (P + R) with P = hits / cutoff and R = hits / labels.
        "f": 2 * hits / (cutoff + num_labels),
        "ndcg": is_hit @ gains / perfect_gains,
        "hit_rate": any_hit.astype(np.float64),
        "mrr": np.where(any_hit, 1 / first_rank, 0.0),
    }


def _keys(items: Int32Array, *, rows: Int64Array, num_items: int) -> Int64Array:
    """One number per (user, item); -1 gives the number of another pair or none, and is to be masked."""
    return np.asarray(rows * num_items + items, dtype=np.int64)


def _distinct(keys: Int64Array) -> Int64Array:
    """The keys in ascending order, each once (np.unique hashes them, many times slower on large keys)."""
    ordered = np.sort(keys)
    return ordered[np.diff(ordered, prepend=-1) > 0]


def _contains(ordered: Int64Array, keys: Int64Array) -> BoolArray:
    """Whether each key is among the ordered ones."""
    after = np.searchsorted(ordered, keys, side="right")
    return np.asarray(after > np.searchsorted(ordered, keys, side="left"))


def _first_occurrences(recommended: Int32Array) -> BoolArray:
    """The first occurrence of each item in its row; False where nothing was recommended."""
    order = np.argsort(recommended, axis=1, kind="stable")
    ordered = np.take_along_axis(recommended, order, axis=1)
    is_first = np.ones(recommended.shape, dtype=np.bool_)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    is_first &= ordered != NOTHING
    unordered = np.empty_like(is_first)
    np.put_along_axis(unordered, order, is_first, axis=1)
    return unordered


def _check(recommended: Int32Array, labels: Labels, *, num_items: int, cutoffs: Sequence[int]) -> None:
    label_items, offsets = labels
    if recommended.ndim != 2 or not recommended.size or not np.issubdtype(recommended.dtype, np.integer):
        raise InputError(
            "Expected recommendations (users, columns) as integers for one user or more, "
            f"got {recommended.dtype} of shape {recommended.shape}."
        )
    if not cutoffs or min(cutoffs) < 1 or max(cutoffs) > recommended.shape[1]:
        raise InputError(
            f"Expected cutoffs from 1 to the {recommended.shape[1]} recommended per user, got {list(cutoffs)}. "
            "Recommend as many as the largest cutoff asks for."
        )
    if offsets.shape != (len(recommended) + 1,) or offsets[0] != 0 or offsets[-1] != label_items.size:
        raise InputError(
            f"Expected label offsets for {len(recommended)} users from 0 to the {label_items.size} labels, "
            f"got {np.array2string(offsets, threshold=10)}."
        )
    if np.diff(offsets).min() < 1:
        raise InputError(
            f"Expected a label or more for every user, but row {np.diff(offsets).argmin()} has none. "
            "Leave users without labels out of the evaluation."
        )
    for name, items in (("recommended", recommended), ("label", label_items)):
        if items.min() < NOTHING or items.max() >= num_items:
            raise InputError(
                f"Expected {name} items from 0 to {num_items - 1} (or -1), got {items.min()} to {items.max()}. "
                "Check that num_items is the size of the catalogue."
            )
