"""Beam search against an exact scan with the same model: the loss of narrower beams."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from beamtree.artefact import Artefact
from beamtree.data.dataset import Dataset
from beamtree.data.split import HeldOut
from beamtree.diagnostics.averages import Average, average_over_users
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.metrics import Metrics, measure
from beamtree.evaluation.protocol import held_out_requests
from beamtree.retrieval.beam import first_searched_level
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float64Array, Int32Array, Int64Array

BEAM_WIDTHS = (20, 50, 100, 150, 200, 300, 400)
CUTOFF = 20
USERS_AT_A_TIME = 64

MAX_SCANNED_LEAVES = 2**23
"""Leaves that the exact scans score in all; on larger catalogues fewer users are scanned, but never fewer than ten."""

MIN_SCANNED_USERS = 10


@dataclass(frozen=True)
class BeamResult:
    """One beam width: how much of the exact top 20 it finds, and what that does to F@20.

    scored_nodes: nodes that a search scores, on average over the users and at most.
    """

    width: int
    overlap: Average
    f: Average
    lost_f: Average
    scored_nodes: float


@dataclass(frozen=True)
class BeamComparison:
    """All widths, and the number of users; scan_f is F@20 of the exact scan."""

    users: int
    num_leaves: int
    model_width: int
    scan_f: Average
    results: tuple[BeamResult, ...]


def compare_beams(
    artefact: Artefact,
    dataset: Dataset,
    users: HeldOut,
    *,
    widths: Sequence[int] = BEAM_WIDTHS,
    advance: Callable[[int], None] = lambda _: None,
) -> BeamComparison:
    """Search and scan for the same users under the model's own protocol; `advance`: called with users * searches."""
    tree, config = artefact.tree, artefact.config
    scanned = users.take(slice(0, num_scanned_users(tree, users=len(users))))
    reachable = reachable_labels(scanned, dataset.sequences, config=config)
    users, labels = reachable.users, reachable.labels
    excluded = users.seen(dataset.sequences) if reachable.excludes_seen else None
    engine = Engine(build_scorer(artefact.weights, tree, config=config), tree)
    requests = held_out_requests(dataset, users, exclude_seen=excluded is not None)
    k = min(CUTOFF, tree.num_items)

    def ask(width: int | None) -> Int32Array:
        parts = []
        for first in range(0, len(users), USERS_AT_A_TIME):
            some = requests.take(slice(first, first + USERS_AT_A_TIME))
            found = engine.scan(some, k=k) if width is None else engine.search(some, k=k, beam_width=width)
            parts.append(found.items)
            advance(len(found.items))
        return np.concatenate(parts)

    def score(items: Int32Array) -> Metrics:
        return measure(items, labels, num_items=len(dataset.items), cutoffs=(k,))

    exact = ask(None)
    scan_f = score(exact).per_user[f"f@{k}"]
    results = []
    for width in beam_widths(tree, widths=widths):
        found = ask(width)
        beam_f = score(found).per_user[f"f@{k}"]
        results.append(
            BeamResult(
                width=width,
                overlap=average_over_users(overlaps(found, exact)),
                f=average_over_users(beam_f),
                lost_f=average_over_users(scan_f - beam_f),
                scored_nodes=float(scored_nodes(tree, width=max(width, k), excluded=excluded).mean()),
            )
        )
    return BeamComparison(
        users=len(users),
        num_leaves=tree.num_leaves,
        model_width=config.retrieval.beam_width,
        scan_f=average_over_users(scan_f),
        results=tuple(results),
    )


def num_scanned_users(tree: ItemTree, *, users: int) -> int:
    """The number of users to scan for: all, unless the catalogue is so large that scanning takes too long."""
    return min(users, max(MIN_SCANNED_USERS, MAX_SCANNED_LEAVES // tree.num_leaves))


def beam_widths(tree: ItemTree, *, widths: Sequence[int] = BEAM_WIDTHS) -> list[int]:
    """The widths to measure, none wider than the leaves, each once."""
    return sorted({min(width, tree.num_leaves) for width in widths})


def overlaps(found: Int32Array, exact: Int32Array) -> Float64Array:
    """The share of each exact list (users, k), -1 left out, that was found; 1 where the exact list is empty."""
    shares = np.ones(len(exact))
    for row, wanted in enumerate(exact):
        wanted = wanted[wanted >= 0]
        if len(wanted):
            shares[row] = np.isin(wanted, found[row]).mean()
    return shares


def scored_nodes(tree: ItemTree, *, width: int, excluded: tuple[Int32Array, Int64Array] | None) -> Float64Array:
    """Nodes that a search scores for each request, at most: (requests,), or (1,) where nothing is excluded.

    The beam grows by what a request excludes, at most to twice its width, as the engine's does.
    """
    eligibility = Eligibility(tree, excluded_items=excluded)
    requests = np.arange(1 if excluded is None else len(excluded[1]) - 1)
    widths = width + np.minimum(np.broadcast_to(eligibility.num_excluded(requests), len(requests)), width)
    counts = np.empty(len(requests))
    for row, beam in enumerate(widths):
        start = first_searched_level(tree, beam_width=int(beam))
        sizes = tree.level_sizes[start:]
        counts[row] = sizes[0] + np.minimum(sizes[1:], tree.branching * beam).sum()
    return counts
