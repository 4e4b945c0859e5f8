"""Counted memory: evidence from the log that needs no training. What followed what, what a person had, what is popular.

At a leaf the kinds of evidence are added with their weights; an inner node has the maximum over the eligible leaves
below it, and at least 0, times the gate of its level. By itself this is an exact max-heap: a beam of k finds the k best
leaves.

    E(request, item) =  transitions * sum over the latest items h of fade^age * ln(1 + how often item followed h)
                      + company     * sum over the latest distinct items h of what h and item have of users together,
                                      both / (h^(1 - balance) * item^balance)
                      + repeats     * returns(item) * ln(1 + sum over own occurrences of repeat_fade^age)
                      + popularity  * ln(1 + count of the item)
                      + trend       * ln(1 + count of the item, halved with every half-life that has passed)

returns(item) says how readily an item returns to those who had it, beside others; about 1 on average.
Popularity and trend add to what is pointed to; besides, the POPULAR_ITEMS eligible items that have most of both take
part on their own, so that a thin history still gets sensible answers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from math import inf, log

import numpy as np

from beamtree.data.sequences import Sequences
from beamtree.data.split import Spans
from beamtree.errors import InputError
from beamtree.model.counting import HERE, Counters
from beamtree.model.trend import Trend
from beamtree.types import AnyArray, Float32Array, Int32Array, Int64Array

POPULAR_ITEMS = 500

ASKED_ITEMS = 50
FADED = 0.02
"""So many of the latest items of a history are asked for what followed them, and none that counts less than this."""

COMPANY_ASKED = 200
"""So many of the latest items are asked for what shares users with them."""

WINDOW = 20
"""An item follows another within so many interactions."""

MAX_FOLLOWERS = 200
"""Items that each list of an item keeps at most."""

HALF = np.float16
LINK_BYTES = np.dtype(np.int32).itemsize + np.dtype(HALF).itemsize

BALANCE = 0.3
"""Of company: 0.5 would be the cosine, which holds popular items back more than what people want next does."""

UNSURE = 20
"""So many people must have had an item before its own share of returns counts as much as that of all items."""


@dataclass(frozen=True)
class MemoryWeights:
    """What each kind of evidence counts beside the others, 0 leaving it out, and how fast a history fades.

    repeats: below 0 where what a person had speaks against itself, as among films.

    fade: what an item of the history counts against the one after it, where it is asked for what followed;
    repeat_fade: the same for a person's own earlier interactions with an item.

    balance: the exponent by which popular items are held back in company; another one takes counting again.
    """

    transitions: float = 1.0
    repeats: float = 0.0
    popularity: float = 0.01
    fade: float = 0.8
    repeat_fade: float = 0.99
    company: float = 0.0
    trend: float = 0.0
    balance: float = BALANCE


@dataclass(frozen=True, eq=False)
class Links:
    """Lists of items, one for each item: item h points to `items[offsets[h]:offsets[h + 1]]`, as strongly as they say.

    offsets: int64 (items + 1,); items: int32 (n,), rising inside a list; strengths: float16 (n,).
    """

    offsets: Int64Array
    items: Int32Array
    strengths: AnyArray

    def strength(self, source: int, target: int) -> float:
        """How strongly one item points to another; 0 where it does not."""
        first, end = self.offsets[source], self.offsets[source + 1]
        place = first + np.searchsorted(self.items[first:end], target)
        return float(self.strengths[place]) if place < end and self.items[place] == target else 0.0

    def strongest(self, most: int) -> "Links":
        """Lists of at most so many items, the strongest of each; equal ones go to the lower item."""
        lengths = np.diff(self.offsets)
        if lengths.max(initial=0) <= most:
            return self
        source = np.repeat(np.arange(len(lengths)), lengths)
        order = np.lexsort((self.items, -self.strengths.astype(np.float32), source))
        kept = np.zeros(len(order), dtype=np.bool_)
        kept[order] = np.arange(len(order)) - self.offsets[source] < most
        offsets = np.concatenate([[0], np.cumsum(np.minimum(lengths, most))])
        return Links(offsets, self.items[kept], self.strengths[kept])


@dataclass(frozen=True, eq=False)
class AskedLinks:
    """One kind of links, what it counts, and how a history asks it.

    The `depth` latest items are asked, each counting fade^age; distinct: an item is asked once, at its latest place.
    """

    links: Links
    weight: float
    fade: float
    depth: int
    distinct: bool

    def sources(self, history: Int32Array) -> Iterator[tuple[int, float]]:
        """The items of a history (positions,), oldest first, that are asked, the latest first, and what each counts."""
        asked: set[int] = set()
        for age, source in enumerate(history[::-1][: self.depth].tolist()):
            if not (self.distinct and source in asked):
                asked.add(source)
                yield source, self.weight * self.fade**age


@dataclass(frozen=True)
class Reason:
    """One item of a history that speaks for a recommendation, and how much of the score it gave."""

    item: int
    strength: float


@dataclass(frozen=True, eq=False)
class Memory:
    """What was counted, and how it is weighed.

    returns: float32 (items,), the root of how often an item returned against all items. popularity: float32 (items,),
    ln(1 + count). trend: the same with faded counts, as of the newest interaction. gates: one for each level of the
    tree, from the root down; empty = 1 everywhere. recent, recent_company: what is to be added to transitions and
    company since they were counted; never saved.
    """

    transitions: Links
    company: Links
    returns: Float32Array
    popularity: Float32Array
    weights: MemoryWeights
    gates: tuple[float, ...] = field(default=())
    trend: Trend = field(default_factory=Trend)
    recent: Links | None = None
    recent_company: Links | None = None

    @classmethod
    def count(
        cls,
        sequences: Sequences,
        spans: Spans,
        *,
        num_items: int,
        window: int = WINDOW,
        followers: int = MAX_FOLLOWERS,
        megabytes: float = inf,
        balance: float = BALANCE,
        counters: Counters = HERE,
    ) -> "Memory":
        """Count inside the training spans, with the weights of the sequences.

        window: an item follows another within so many interactions. followers: items that each list keeps at most,
        fewer where the lists of all items would take more than `megabytes`. balance: as in `MemoryWeights`.
        """
        items, weights = sequences.items, sequences.weights
        following = counters.followers(
            items, spans, num_items=num_items, window=window, most=followers, weights=weights
        )
        company = counters.company(items, spans, num_items=num_items, most=followers, weights=weights, balance=balance)
        counts = counters.items(items, spans, num_items=num_items, weights=weights)
        return cls(
            Links(following.offsets, following.items, np.log1p(following.counts).astype(HALF)),
            Links(company.pairs.offsets, company.pairs.items, company.strengths(balance).astype(HALF)),
            returns=_relative_returns(*counters.returns(items, spans, num_items=num_items, weights=weights)),
            popularity=np.log1p(counts).astype(np.float32),
            weights=MemoryWeights(balance=balance),
        ).within(megabytes * 1e6)

    def within(self, num_bytes: float) -> "Memory":
        """The same with the longest lists cut until all of them take at most so many bytes."""
        lengths = np.concatenate([np.diff(self.transitions.offsets), np.diff(self.company.offsets)])
        lists_with = np.cumsum(np.bincount(lengths)[::-1])[::-1][1:]  # at least 1, 2, ... items
        most = int(np.searchsorted(np.cumsum(lists_with), num_bytes / LINK_BYTES, side="right"))
        return replace(self, transitions=self.transitions.strongest(most), company=self.company.strongest(most))

    @property
    def kinds(self) -> tuple[AskedLinks, ...]:
        """The kinds of links that count for something, and how they are asked."""
        weights = self.weights
        asked = ASKED_ITEMS if weights.fade == 1.0 else min(ASKED_ITEMS, int(log(FADED) / log(weights.fade)) + 1)
        transitions = AskedLinks(self.transitions, weights.transitions, weights.fade, asked, distinct=False)
        company = AskedLinks(self.company, weights.company, 1.0, COMPANY_ASKED, distinct=True)
        kinds = [transitions, company]
        for kind, since in ((transitions, self.recent), (company, self.recent_company)):
            if since is not None and len(since.items):
                kinds.append(replace(kind, links=since))
        return tuple(kind for kind in kinds if kind.weight > 0.0)

    def weighed(self, weights: MemoryWeights) -> "Memory":
        """The same counts under other weights; the balance is that with which they were counted."""
        return replace(self, weights=replace(weights, balance=self.weights.balance))

    @cached_property
    def demand(self) -> Float32Array:
        """What popularity and trend say of each item, whoever asks: (items,), weighed."""
        demand = np.float32(self.weights.popularity) * self.popularity
        of_late = self.trend.demand
        return demand + np.float32(self.weights.trend) * of_late if of_late.size else demand

    @property
    def has_demand(self) -> bool:
        """Whether popularity or trend count for something."""
        return self.weights.popularity > 0.0 or self.weights.trend > 0.0

    @cached_property
    def most_demanded(self) -> Int32Array:
        """Items (items,) by falling demand, equal ones by rising number."""
        return np.argsort(-self.demand, kind="stable").astype(np.int32)

    def reasons(self, history: Int32Array, item: int) -> list[Reason]:
        """The items of a history (positions,), oldest first, that point to an item, the strongest first."""
        strengths: dict[int, float] = {}
        for kind in self.kinds:
            for source, weight in kind.sources(history):
                strength = weight * kind.links.strength(source, item)
                if strength > 0.0:
                    strengths[source] = strengths.get(source, 0.0) + strength
        own = np.flatnonzero(history[::-1] == item)
        if own.size and self.weights.repeats > 0.0:
            repeated = float(self.returns[item] * np.log1p((self.weights.repeat_fade**own).sum()))
            strengths[item] = strengths.get(item, 0.0) + self.weights.repeats * repeated
        ordered = sorted(strengths.items(), key=lambda pair: (-pair[1], pair[0]))
        return [Reason(source, strength) for source, strength in ordered]

    def arrays(self) -> dict[str, AnyArray]:
        """Everything as arrays by name, for a file."""
        return {
            **_named("transitions", self.transitions),
            **_named("company", self.company),
            "returns": self.returns,
            "popularity": self.popularity,
            **{f"weights.{name}": np.array(weight) for name, weight in asdict(self.weights).items()},
            "gates": np.array(self.gates, dtype=np.float64),
            "trend.demand": self.trend.demand,
            "trend.half_life": np.array(self.trend.half_life),
            "trend.moment": np.array(self.trend.moment),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> "Memory":
        """What `arrays` gave; InputError where something is missing."""
        try:
            return cls(
                _links("transitions", arrays),
                _links("company", arrays),
                returns=arrays["returns"],
                popularity=arrays["popularity"],
                weights=_weights(arrays),
                gates=tuple(float(gate) for gate in arrays["gates"]),
                trend=Trend(arrays["trend.demand"], float(arrays["trend.half_life"]), float(arrays["trend.moment"])),
            )
        except KeyError as error:
            raise InputError(f"The counted memory is incomplete: {error}. Fit the model again.") from error


def _weights(arrays: Mapping[str, AnyArray]) -> MemoryWeights:
    """Weights as stored; what does not name a balance was counted with the cosine."""
    stored = {"weights.balance": np.array(0.5), **arrays}
    return MemoryWeights(**{field.name: float(stored[f"weights.{field.name}"]) for field in fields(MemoryWeights)})


def _relative_returns(had: Int64Array, again: Int64Array) -> Float32Array:
    """The root of each item's share of returns over that of all items, (items,): near 1 where few people had it."""
    usual = max(again.sum(), 1) / max(had.sum(), 1)
    share = (again + UNSURE * usual) / (had + UNSURE)
    relative: Float32Array = np.sqrt(share / usual).astype(np.float32)
    return relative


def _named(kind: str, links: Links) -> dict[str, AnyArray]:
    return {f"{kind}.offsets": links.offsets, f"{kind}.items": links.items, f"{kind}.strengths": links.strengths}


def _links(kind: str, arrays: Mapping[str, AnyArray]) -> Links:
    return Links(arrays[f"{kind}.offsets"], arrays[f"{kind}.items"], arrays[f"{kind}.strengths"])
