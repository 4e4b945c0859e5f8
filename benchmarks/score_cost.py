"""What a request costs with the default score, beside the attention network on all levels of the same catalogue."""

from collections.abc import Callable
from itertools import cycle

import numpy as np

from beamtree import native
from beamtree.config import ModelSettings
from beamtree.retrieval.native_scorer import NativeScorer
from benchmarks.catalogue import Catalogue, followers_within
from benchmarks.measure import take_turns

K = 20
REQUESTS = 100
TURNS = 400
LINK_MEGABYTES = ModelSettings().memory_megabytes


def measure_score_cost(*, items: int, beam: int, turns: int = TURNS) -> dict[str, float]:
    """Median milliseconds of a request, alone on one thread, and their share of those of attention on all levels.

    The default score is tower and memory; with attention on the leaves, these and the network on the last level. The
    yardstick is the network on all levels alone: tower and memory beside it would only flatter the ratio.
    """
    catalogue = Catalogue.draw(items=items, followers=followers_within(LINK_MEGABYTES, items=items))
    requests = catalogue.requests(REQUESTS)

    def ask(scorer: NativeScorer) -> Callable[[], object]:
        upcoming = cycle(requests)
        return lambda: scorer.search(next(upcoming), k=K, beam_width=beam)

    contestants = {
        "ms_default_score": ask(catalogue.scorer("tower", "memory")),
        "ms_with_leaf_attention": ask(catalogue.scorer("attention", "tower", "memory", attention_levels=1)),
        "ms_attention_on_all_levels": ask(catalogue.scorer("attention")),
    }
    threads = native.threads()
    native.set_threads(1)
    try:
        taken = take_turns(contestants, turns=turns)
    finally:
        native.set_threads(threads)
    results = {name: float(np.median(seconds)) * 1e3 for name, seconds in taken.items()}
    yardstick = results["ms_attention_on_all_levels"]
    return {
        **results,
        "score_cost": results["ms_default_score"] / yardstick,
        "score_cost_with_leaf_attention": results["ms_with_leaf_attention"] / yardstick,
    }
