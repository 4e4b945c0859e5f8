"""Latency of single requests by beam width, beside an exact scan."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from beamtree.data.requests import Requests
from beamtree.diagnostics.beams import scored_nodes
from beamtree.diagnostics.ranked_lists import CUTOFF
from beamtree.retrieval.engine import Engine

WIDTHS = (20, 50, 100, 200, 500, 1000, 2000)
MAX_REQUESTS = 50
WARM_UP = 3

Clock = Callable[[], float]
"""Seconds from any start."""


@dataclass(frozen=True)
class BeamLatency:
    """One beam width: milliseconds of a request that is searched for alone, and the nodes that it scores at most."""

    width: int
    median: float
    high: float
    scored_nodes: float


@dataclass(frozen=True)
class Latency:
    """All widths and the number of requests, in milliseconds; scan: the median of a scan of every item.

    high is the 95th percentile. These are the only numbers of a report that are not deterministic.
    """

    requests: int
    own_width: int
    results: tuple[BeamLatency, ...]
    scan: float

    @property
    def own(self) -> BeamLatency:
        """The model's own width."""
        return next(result for result in self.results if result.width == self.own_width)


def measure_latency(
    engine: Engine,
    requests: Requests,
    *,
    own_width: int,
    clock: Clock = time.perf_counter,
    advance: Callable[[int], None] = lambda _: None,
) -> Latency:
    """Search for each request alone, with every width up to the number of leaves; `advance`: called per width."""
    tree = engine.tree
    k = min(CUTOFF, tree.num_items)
    requests = requests.take(slice(0, MAX_REQUESTS))
    excluded = None if requests.excluded is None else (requests.excluded.items, requests.excluded.offsets)

    def milliseconds(ask: Callable[[Requests], object]) -> list[float]:
        alone = [requests.take(slice(row, row + 1)) for row in range(len(requests))]
        for one in alone[:WARM_UP]:
            ask(one)
        times = []
        for one in alone:
            started = clock()
            ask(one)
            times.append(1000.0 * (clock() - started))
        return times

    results = []
    own = min(own_width, tree.num_leaves)
    for width in latency_widths(tree.num_leaves, own_width=own_width):
        times = milliseconds(lambda one, width=width: engine.search(one, k=k, beam_width=width))  # type: ignore[misc]
        nodes = float(scored_nodes(tree, width=max(width, k), excluded=excluded).mean())
        results.append(BeamLatency(width, float(np.median(times)), float(np.quantile(times, 0.95)), nodes))
        advance(1)
    scan = float(np.median(milliseconds(lambda one: engine.scan(one, k=k))))
    advance(1)
    return Latency(len(requests), own, tuple(results), scan)


def latency_widths(num_leaves: int, *, own_width: int) -> list[int]:
    """The widths and the model's own, none wider than the leaves, each once."""
    return sorted({min(width, num_leaves) for width in (*WIDTHS, own_width)})
