"""Counting on a cluster: each task counts for some users, then others merge the counts of some items each.

All counts are sums over users, so the result is that of one process, bit for bit; sums of weights, to rounding. A task
holds the pairs of its own users or of its own items, however large the log is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from beamtree.cluster.connection import Cluster, connected, results_of
from beamtree.data.split import Spans
from beamtree.model.counting import (
    COMPANY_ITEMS,
    Company,
    CountedPairs,
    Counters,
    Counts,
    count_company,
    count_followers,
    count_items,
    count_returns,
    norms_of,
    strongest,
)
from beamtree.types import AnyArray, Float32Array, Float64Array, Int32Array, Int64Array

PAIRS_OF_A_TASK = 20_000_000
"""Pairs, repeated ones counted, that a task meets; some 16 bytes each while they are merged."""


class Shard(NamedTuple):
    """The items of some spans, and where each span starts and ends among these; what each counts, None = 1."""

    items: Int32Array
    spans: Spans
    weights: Float32Array | None


class Triples(NamedTuple):
    """Pairs of source and target (n,), and how often each was counted."""

    sources: AnyArray
    targets: AnyArray
    counts: AnyArray


@dataclass(frozen=True)
class ClusterCounting:
    """Counts by the tasks of a cluster. pairs_of_a_task: as `PAIRS_OF_A_TASK`."""

    cluster: Cluster
    pairs_of_a_task: int = PAIRS_OF_A_TASK

    def counters(self) -> Counters:
        """These ways of counting, for `Memory.count`."""
        return Counters(items=self.items, returns=self.returns, followers=self.followers, company=self.company)

    def items(self, items: Int32Array, spans: Spans, *, num_items: int, weights: Float32Array | None = None) -> Counts:
        """As `count_items`."""
        (total,) = self._summed(_item_counts, items, spans, weights, num_items=num_items)
        return total

    def returns(
        self, items: Int32Array, spans: Spans, *, num_items: int, weights: Float32Array | None = None
    ) -> tuple[Int64Array, Int64Array]:
        """As `count_returns`."""
        had, again = self._summed(_return_counts, items, spans, weights, num_items=num_items)
        return had, again

    def followers(
        self,
        items: Int32Array,
        spans: Spans,
        *,
        num_items: int,
        window: int,
        most: int,
        weights: Float32Array | None = None,
    ) -> CountedPairs:
        """As `count_followers`."""
        with connected(self.cluster) as ray:
            shards = self._shards(items, spans, weights, pairs_each=lambda lengths: lengths * window)
            count = self._task(ray, _follower_pairs, returns=len(shards))
            parts = [count.remote(shard, num_items, window, len(shards)) for shard in shards]
            return self._merged(ray, parts, num_items=num_items, most=most, norms=None)

    def company(
        self,
        items: Int32Array,
        spans: Spans,
        *,
        num_items: int,
        most: int,
        weights: Float32Array | None = None,
        balance: float = 0.5,
    ) -> Company:
        """As `count_company`."""
        with connected(self.cluster) as ray:
            shards = self._shards(
                items, spans, weights, pairs_each=lambda lengths: np.minimum(lengths, COMPANY_ITEMS) ** 2
            )
            count = self._task(ray, _company_pairs, returns=len(shards) + 1)
            parts = [count.remote(shard, num_items, len(shards)) for shard in shards]
            had, wanted = _added_up(ray, [part[-1] for part in parts])
            pairs = [part[:-1] for part in parts]
            norms = norms_of(wanted, balance)
            return Company(self._merged(ray, pairs, num_items=num_items, most=most, norms=norms), had, wanted)

    def _summed(
        self,
        count: Callable[..., tuple[Counts, ...]],
        items: Int32Array,
        spans: Spans,
        weights: Float32Array | None,
        *,
        num_items: int,
    ) -> list[Counts]:
        with connected(self.cluster) as ray:
            shards = self._shards(items, spans, weights, pairs_each=lambda lengths: lengths)
            task = self._task(ray, count, returns=1)
            return _added_up(ray, [task.remote(shard, num_items) for shard in shards])

    def _merged(
        self, ray: Any, parts: list[Any], *, num_items: int, most: int, norms: Float64Array | None
    ) -> CountedPairs:
        """The lists of all items, from the pairs of each shard (outer) and of each bucket of sources (inner)."""
        task = self._task(ray, _merge, returns=1)
        by_bucket = zip(*(part if isinstance(part, list) else [part] for part in parts), strict=True)
        merged: list[CountedPairs] = results_of(
            ray, [task.remote(num_items, most, norms, *bucket) for bucket in by_bucket]
        )
        lengths = np.array([np.diff(pairs.offsets) for pairs in merged])
        source = np.concatenate([np.repeat(np.arange(num_items), own) for own in lengths])
        order = np.argsort(source, kind="stable")
        return CountedPairs(
            np.concatenate([[0], np.cumsum(lengths.sum(axis=0))]).astype(np.int64),
            np.concatenate([pairs.items for pairs in merged])[order],
            np.concatenate([pairs.counts for pairs in merged])[order],
        )

    def _task(self, ray: Any, function: Callable[..., Any], *, returns: int) -> Any:
        return ray.remote(num_cpus=self.cluster.threads, num_returns=returns)(function)

    def _shards(
        self,
        items: Int32Array,
        spans: Spans,
        weights: Float32Array | None,
        *,
        pairs_each: Callable[[Int64Array], Int64Array],
    ) -> list[Shard]:
        """The spans in groups that meet about as many pairs each, at least one group for each worker."""
        pairs = np.cumsum(pairs_each(spans.end - spans.start))
        total = int(pairs[-1]) if len(pairs) else 0
        groups = max(self.cluster.num_workers(), -(-total // self.pairs_of_a_task), 1)
        group = np.minimum(pairs * groups // max(1, total), groups - 1) if total else np.zeros(len(pairs), np.int64)
        cuts = np.searchsorted(group, np.arange(groups + 1))
        return list(_cut(items, spans, weights, cuts))


def _added_up(ray: Any, parts: Sequence[Any]) -> list[Counts]:
    """The sums of the arrays of all tasks; one task's at a time is held here."""
    first, *others = parts
    totals = [kind.copy() for kind in results_of(ray, [first])[0]]
    for part in others:
        for total, kind in zip(totals, results_of(ray, [part])[0], strict=True):
            total += kind
    return totals


def _cut(items: Int32Array, spans: Spans, weights: Float32Array | None, cuts: Int64Array) -> Iterator[Shard]:
    """Runs of spans, each with the stretch of the flat items that it lies in."""
    for first, end in pairwise(cuts):
        user, starts, ends = spans.user[first:end], spans.start[first:end], spans.end[first:end]
        begin = int(starts.min(initial=len(items)))
        stop = max(begin, int(ends.max(initial=0)))
        own = None if weights is None else weights[begin:stop]
        yield Shard(items[begin:stop], Spans(user, starts - begin, ends - begin), own)


def _item_counts(shard: Shard, num_items: int) -> tuple[Counts]:
    return (count_items(shard.items, shard.spans, num_items=num_items, weights=shard.weights),)


def _return_counts(shard: Shard, num_items: int) -> tuple[Int64Array, Int64Array]:
    return count_returns(shard.items, shard.spans, num_items=num_items, weights=shard.weights)


def _follower_pairs(shard: Shard, num_items: int, window: int, buckets: int) -> Any:
    """What followed what in a shard, by buckets of the items that were followed."""
    counted = count_followers(
        shard.items, shard.spans, num_items=num_items, window=window, most=num_items, weights=shard.weights
    )
    return _only(_by_bucket(counted, buckets=buckets))


def _company_pairs(shard: Shard, num_items: int, buckets: int) -> list[Any]:
    """What came together in a shard, by buckets, and last what each item had there and was wanted."""
    counted = count_company(shard.items, shard.spans, num_items=num_items, most=num_items, weights=shard.weights)
    return [*_by_bucket(counted.pairs, buckets=buckets), (counted.had, counted.wanted)]


def _by_bucket(pairs: CountedPairs, *, buckets: int) -> list[Triples]:
    """The pairs whose source leaves the remainder 0, 1, ... when divided by the number of buckets."""
    sources = np.repeat(np.arange(len(pairs.offsets) - 1, dtype=np.int32), np.diff(pairs.offsets))
    bucket = sources % buckets
    rows = [np.flatnonzero(bucket == number) for number in range(buckets)]
    return [Triples(sources[some], pairs.items[some], pairs.counts[some]) for some in rows]


def _only(values: list[Any]) -> Any:
    """A list as Ray returns it: of one value, the value itself."""
    return values[0] if len(values) == 1 else values


def _merge(num_items: int, most: int, norms: Float64Array | None, *parts: Triples) -> CountedPairs:
    """The pairs of one bucket summed over all shards, and of each source the `most` that rank highest."""
    met = np.concatenate([part.sources.astype(np.int64) * num_items + part.targets for part in parts])
    each = np.concatenate([part.counts for part in parts])
    keys, place = np.unique(met, return_inverse=True)
    is_weighed = each.dtype.kind == "f"
    counts = np.zeros(len(keys), dtype=np.float64 if is_weighed else np.int64)
    np.add.at(counts, place, each.astype(counts.dtype))
    ranked = counts if norms is None else counts / norms[keys % num_items]
    kept = strongest(keys, ranked, num_items=num_items, most=most)
    source, counts = keys[kept] // num_items, counts[kept]
    ends = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=num_items))]).astype(np.int64)
    return CountedPairs(
        ends, (keys[kept] % num_items).astype(np.int32), counts if is_weighed else counts.astype(np.uint32)
    )
