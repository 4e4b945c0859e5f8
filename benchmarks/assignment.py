"""How near the ways to share nodes among items come to the best sum of scores, and how long they take.

    python -m benchmarks.assignment --json
    python -m benchmarks.assignment --items 184530 --nodes 128 --turns 1 --json

Scores are drawn: few items have many instances, and items of one theme like the same nodes. lost_* is what an
assignment lacks of the highest sum there is, in per cent of it, or, where that takes too long to find, of a bound that
no sum exceeds; lost_current is that of a random placement. peak_mb is that of the whole process.
"""

import argparse
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from beamtree.tree.auction import auction_prices
from benchmarks.measure import report, take_turns
from benchmarks.memory import peak_mb
from research.placement import ASSIGNMENTS

THEMES = 40
MOST_ITEMS_TO_SOLVE = 4000


def measure_assignment(*, items: int, nodes: int, turns: int) -> dict[str, float]:
    """Lost per cent and milliseconds of each way."""
    generator = np.random.default_rng(0)
    scores = draw_scores(items, nodes, generator=generator)
    capacities = np.full(nodes, -(-items // nodes))
    current = generator.permutation(np.repeat(np.arange(nodes), capacities)[:items])
    best = highest_sum(scores, capacities) if items <= MOST_ITEMS_TO_SOLVE else bound_on_sums(scores, capacities)

    def lost(node_of_item: NDArray[np.int64]) -> float:
        return 100 * (best - float(scores[np.arange(items), node_of_item].sum())) / abs(best)

    results = {"lost_current": lost(current)}
    for name, assign in ASSIGNMENTS.items():
        results[f"lost_{name}"] = lost(assign(scores, capacities=capacities, current=current))
    contestants = {
        name: partial(assign, scores, capacities=capacities, current=current) for name, assign in ASSIGNMENTS.items()
    }
    for name, seconds in take_turns(contestants, turns=turns).items():
        results[f"ms_{name}"] = 1e3 * min(seconds)
    results["peak_mb"] = peak_mb()
    return results


def highest_sum(scores: NDArray[np.float64], capacities: NDArray[np.int64]) -> float:
    """The sum of scores of the best assignment."""
    slots = np.repeat(np.arange(len(capacities)), capacities)
    placed, chosen = linear_sum_assignment(scores[:, slots], maximize=True)
    return float(scores[placed, slots[chosen]].sum())


def bound_on_sums(scores: NDArray[np.float64], capacities: NDArray[np.int64]) -> float:
    """By duality: what items would have at any prices, and what the nodes would earn, is at least the highest sum."""
    prices = auction_prices(scores, capacities=capacities)
    return float((scores - prices).max(axis=1).sum() + capacities @ prices)


def draw_scores(items: int, nodes: int, *, generator: np.random.Generator) -> NDArray[np.float64]:
    """Log-likelihoods (items, nodes), summed over an item's instances."""
    instances = np.ceil(200 * generator.pareto(1.0, size=(items, 1)).clip(max=50.0) / 50 + 0.5)
    liked = generator.normal(scale=2.0, size=(THEMES, nodes))[generator.integers(0, THEMES, items)]
    logits = liked + generator.normal(size=(items, nodes))
    scores: NDArray[np.float64] = instances * (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    return scores


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = measure_assignment(items=arguments.items, nodes=arguments.nodes, turns=arguments.turns)
    report({"items": arguments.items, "nodes": arguments.nodes}, results, as_json=arguments.json)


if __name__ == "__main__":
    main()
