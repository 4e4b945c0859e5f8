"""Contribution of each part of the score: the whole score beside each part alone and beside the score without it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from beamtree.artefact import Artefact
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import HeldOut
from beamtree.diagnostics.averages import Average, Bounded, average_over_users
from beamtree.diagnostics.beams import CUTOFF, USERS_AT_A_TIME, num_scanned_users
from beamtree.diagnostics.guidance import LevelGuidance, measure_guidance
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.metrics import Labels, measure
from beamtree.evaluation.protocol import held_out_requests
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import arrays_by_part, build_scorer
from beamtree.scorer import Scorer
from beamtree.types import BoolArray, Float64Array, Int32Array, Int64Array

MAX_USERS = 500
"""Users that every score is asked for; of more, a sample is drawn by the seed."""

Advance = Callable[[int], None]
Chosen = frozenset[str]
"""The parts that a score is the sum of."""


@dataclass(frozen=True)
class Quality:
    """F@20 and NDCG@20 over users."""

    f: Average
    ndcg: Average


@dataclass(frozen=True)
class PartContribution:
    """One part: the quality of the part alone and of the score without it, and what it adds to each metric.

    A gain is the whole score's metric minus that without the part.
    """

    part: str
    alone: Quality
    without: Quality
    f_gain: Bounded
    ndcg_gain: Bounded


@dataclass(frozen=True)
class GroupContributions:
    """All parts for one group of users; whole: the score as it is."""

    group: str
    users: int
    whole: Quality
    parts: tuple[PartContribution, ...]


@dataclass(frozen=True)
class Contributions:
    """All parts for all groups, everybody first, and level by level.

    median_history: histories of at most this length are the short ones. popular_items: the number of items that make
    up half of the training interactions. guided_users: users whose searches were followed down the tree.
    """

    parts: tuple[str, ...]
    users: int
    median_history: float
    popular_items: int
    groups: tuple[GroupContributions, ...]
    guided_users: int
    levels: tuple[LevelGuidance, ...]

    @property
    def everybody(self) -> GroupContributions:
        """The parts for all users together."""
        return self.groups[0]


@dataclass(frozen=True, eq=False)
class _Group:
    """Users (rows of the sample), and those of their labels that count."""

    name: str
    rows: Int64Array
    labels: Labels


def measure_contributions(
    artefact: Artefact, dataset: Dataset, users: HeldOut, *, seed: int, advance: Advance = lambda _: None
) -> Contributions | None:
    """Search with every part, without every part and with all of them; None for a score of a single part.

    Everything follows the model's own protocol and beam width. `advance` is called with finished users * searches.
    """
    parts = tuple(sorted(arrays_by_part(artefact.weights)))
    if len(parts) < 2:
        return None
    tree, config = artefact.tree, artefact.config
    reachable = reachable_labels(sample_users(users, seed=seed), dataset.sequences, config=config)
    users = reachable.users
    requests = held_out_requests(dataset, users, exclude_seen=reachable.excludes_seen)
    k = min(CUTOFF, tree.num_items)
    scorers = {chosen: _scorer(artefact, chosen) for chosen in chosen_parts(parts)}
    found = {
        chosen: _search(Engine(scorer, tree), requests, k=k, beam_width=config.retrieval.beam_width, advance=advance)
        for chosen, scorer in scorers.items()
    }
    lengths = users.history_end - users.history_start
    is_popular = popular_items(artefact.popularity)
    groups = [
        _Group("all users", np.arange(len(users)), reachable.labels),
        *_by_history(lengths, reachable.labels),
        *_by_popularity(is_popular, reachable.labels),
    ]
    guided = requests.take(slice(0, num_scanned_users(tree, users=len(users))))
    return Contributions(
        parts=parts,
        users=len(users),
        median_history=float(np.median(lengths)),
        popular_items=int(is_popular.sum()),
        groups=tuple(
            _contributions(group, found, parts=parts, num_items=tree.num_items, seed=seed)
            for group in groups
            if len(group.rows)
        ),
        guided_users=len(guided),
        levels=measure_guidance(
            tree,
            {part: scorers[frozenset({part})] for part in parts},
            guided,
            exact=Engine(scorers[frozenset(parts)], tree).scan(guided, k=k).items,
            beam_width=config.retrieval.beam_width,
            k=k,
            advance=advance,
        ),
    )


def num_contribution_searches(artefact: Artefact, *, users: int) -> int:
    """The total of `advance` for the given number of users."""
    parts = tuple(sorted(arrays_by_part(artefact.weights)))
    if len(parts) < 2:
        return 0
    asked = min(users, MAX_USERS)
    return asked * len(chosen_parts(parts)) + num_scanned_users(artefact.tree, users=asked)


def chosen_parts(parts: tuple[str, ...]) -> list[Chosen]:
    """The scores that are compared, each once: all parts, each of them alone, all but each of them."""
    everything = frozenset(parts)
    chosen = [everything, *(frozenset({part}) for part in parts), *(everything - {part} for part in parts)]
    return list(dict.fromkeys(chosen))


def sample_users(users: HeldOut, *, seed: int) -> HeldOut:
    """At most MAX_USERS of the users, drawn by the seed, in their order."""
    if len(users) <= MAX_USERS:
        return users
    return users.take(np.sort(np.random.default_rng(seed).permutation(len(users))[:MAX_USERS]))


def popular_items(counts: Int64Array) -> BoolArray:
    """Which items (items,) make up half of all interactions: the fewest that do, equal counts by rising item."""
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    is_popular = np.zeros(len(counts), dtype=np.bool_)
    is_popular[order[2 * before < counts.sum()]] = True
    return is_popular


def _scorer(artefact: Artefact, chosen: Chosen) -> Scorer:
    arrays = {name: array for name, array in artefact.weights.items() if name.partition("/")[0] in chosen}
    return build_scorer(arrays, artefact.tree, config=artefact.config)


def _search(engine: Engine, requests: Requests, *, k: int, beam_width: int, advance: Advance) -> Int32Array:
    found = []
    for first in range(0, len(requests), USERS_AT_A_TIME):
        some = requests.take(slice(first, first + USERS_AT_A_TIME))
        found.append(engine.search(some, k=k, beam_width=beam_width).items)
        advance(len(some))
    return np.concatenate(found)


def _by_history(lengths: Int64Array, labels: Labels) -> list[_Group]:
    is_short = lengths <= np.median(lengths)
    return [
        _Group(name, np.flatnonzero(chosen), _take(labels, chosen))
        for name, chosen in (("short histories", is_short), ("long histories", ~is_short))
    ]


def _take(labels: Labels, chosen: BoolArray) -> Labels:
    """The labels of the chosen users (users,)."""
    items, offsets = labels
    counts = np.diff(offsets)
    return items[np.repeat(chosen, counts)], np.concatenate(([0], np.cumsum(counts[chosen])))


def _by_popularity(is_popular: BoolArray, labels: Labels) -> list[_Group]:
    """Users with popular labels, of which only these count, and the same for rare ones; most users are in both."""
    items, offsets = labels
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    known = items >= 0
    of_popular = known & is_popular[np.where(known, items, 0)]
    groups = []
    for name, counts in (("popular labels", of_popular), ("rare labels", ~of_popular)):
        per_user = np.bincount(rows[counts], minlength=len(offsets) - 1)
        asked = np.flatnonzero(per_user)
        groups.append(_Group(name, asked, (items[counts], np.concatenate(([0], np.cumsum(per_user[asked]))))))
    return groups


def _contributions(
    group: _Group, found: Mapping[Chosen, Int32Array], *, parts: tuple[str, ...], num_items: int, seed: int
) -> GroupContributions:
    values = {chosen: _per_user(items[group.rows], group, num_items=num_items) for chosen, items in found.items()}
    everything = frozenset(parts)

    def gain(metric: str, part: str) -> Bounded:
        return Bounded.difference(values[everything][metric], values[everything - {part}][metric], seed=seed)

    return GroupContributions(
        group=group.name,
        users=len(group.rows),
        whole=_quality(values[everything]),
        parts=tuple(
            PartContribution(
                part=part,
                alone=_quality(values[frozenset({part})]),
                without=_quality(values[everything - {part}]),
                f_gain=gain("f", part),
                ndcg_gain=gain("ndcg", part),
            )
            for part in parts
        ),
    )


def _per_user(found: Int32Array, group: _Group, *, num_items: int) -> dict[str, Float64Array]:
    cutoff = found.shape[1]
    metrics = measure(found, group.labels, num_items=num_items, cutoffs=(cutoff,)).per_user
    return {name: metrics[f"{name}@{cutoff}"] for name in ("f", "ndcg")}


def _quality(values: Mapping[str, Float64Array]) -> Quality:
    return Quality(f=average_over_users(values["f"]), ndcg=average_over_users(values["ndcg"]))
