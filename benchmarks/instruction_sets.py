"""CPU time of a request with the kernels that are chosen in this process; run it once for each.

    BEAMTREE_KERNELS=baseline python -m benchmarks.instruction_sets --json

CPU time of the one thread that searches, so that other work on the machine hardly disturbs it. Catalogue and scores are
those of `benchmarks.retrieval`: the default (tower and memory), with attention on the leaves, attention on all levels.
"""

import argparse
import time
from collections.abc import Callable
from itertools import cycle

import numpy as np

from beamtree import native
from beamtree.native.variants import chosen_variant
from beamtree.retrieval.native_scorer import NativeScorer
from benchmarks.catalogue import Catalogue, followers_within
from benchmarks.measure import report
from benchmarks.score_cost import LINK_MEGABYTES, REQUESTS, K


def measure_instruction_set(*, items: int, beam: int, turns: int) -> dict[str, float]:
    """Median milliseconds of CPU time per request, by score."""
    native.set_threads(1)
    catalogue = Catalogue.draw(items=items, followers=followers_within(LINK_MEGABYTES, items=items))
    scorers = {
        "ms_default_score": catalogue.scorer("tower", "memory"),
        "ms_with_leaf_attention": catalogue.scorer("attention", "tower", "memory", attention_levels=1),
        "ms_attention_on_all_levels": catalogue.scorer("attention"),
    }
    requests = cycle(catalogue.requests(REQUESTS))

    def ask(scorer: NativeScorer) -> Callable[[], object]:
        return lambda: scorer.search(next(requests), k=K, beam_width=beam)

    return {name: median_ms(ask(scorer), turns=turns) for name, scorer in scorers.items()}


def median_ms(request: Callable[[], object], *, turns: int) -> float:
    """Median CPU time of this thread, in milliseconds."""
    taken = []
    for _ in range(turns):
        started = time.thread_time()
        request()
        taken.append(time.thread_time() - started)
    return float(np.median(taken)) * 1e3


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=7129)
    parser.add_argument("--beam", type=int, default=150)
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = measure_instruction_set(items=arguments.items, beam=arguments.beam, turns=arguments.turns)
    settings = {"items": arguments.items, "beam": arguments.beam, "k": K, "kernels": chosen_variant()}
    report(settings, results, as_json=arguments.json)


if __name__ == "__main__":
    main()
