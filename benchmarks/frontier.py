"""The default search beside faiss' HNSW over the same item vectors, by the size of the catalogue.

    python -m benchmarks.frontier --json
    python -m benchmarks.frontier --items 10000 100000

Random catalogues (`catalogue.py` says how they are drawn), histories of 50 items, one thread, one request at a time,
nothing excluded. The default search is tower and memory: the encoder, the memory's evidence, a beam of 150, the top
20. HNSW (IndexHNSWFlat, inner product, 64 dimensions, M 16, efConstruction 200, efSearch 150, top 20) is asked for the
vector that the same encoder gives, whose time counts on both sides. The two take turns, each on a history that the
other has not just read. ms_over_hnsw is the ratio of the medians.

Each item has two follower lists. Both are as long as by default (200) where all lists together fit into
--link-megabytes, else as long as these allow: of 400 MB, 33 each with a million items; --followers says it directly.
recall_*: how much of an exact scan's top 20, by the same score, each search finds. Building the index takes minutes
with a million items, on all cores.
"""

import argparse
import os
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np

from beamtree import native
from beamtree.config import ModelSettings
from beamtree.data.requests import Requests
from beamtree.model.memory import LINK_BYTES
from beamtree.retrieval.native_scorer import NativeScorer
from beamtree.types import Float32Array, Int64Array
from benchmarks.accuracy import measured_accuracy
from benchmarks.catalogue import HISTORY_LENGTH, Catalogue, followers_within
from benchmarks.measure import report, take_turns

SIZES = (10_000, 100_000, 1_000_000)
QUICK_SIZES = (1_000,)
K, BEAM = 20, 150
NEIGHBOURS, CONSTRUCTION_WIDTH, SEARCH_WIDTH = 16, 200, 150
REQUESTS = 500
SCANNED = 20


class Hnsw:
    """faiss' graph over vectors (items, width), built with all cores and asked with one."""

    def __init__(self, vectors: Float32Array) -> None:
        try:
            import faiss
        except ModuleNotFoundError as missing:
            raise SystemExit(
                f"The package {missing.name} is missing: pip install 'beamtree[bench]', or: pip install faiss-cpu."
            ) from missing
        self._index = faiss.IndexHNSWFlat(vectors.shape[1], NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        self._index.hnsw.efConstruction = CONSTRUCTION_WIDTH
        faiss.omp_set_num_threads(len(os.sched_getaffinity(0)))
        self._index.add(vectors)
        faiss.omp_set_num_threads(1)
        self._index.hnsw.efSearch = SEARCH_WIDTH

    def search(self, queries: Float32Array, *, k: int) -> Int64Array:
        """The items (n, k) nearest to queries (n, width), by inner product."""
        _, items = self._index.search(queries, k)
        found: Int64Array = items
        return found


def measure_frontier(*, items: int, followers: int, requests: int) -> dict[str, Any]:
    """Median milliseconds of a request in a catalogue of one size."""
    catalogue = Catalogue.draw(items=items, followers=followers)
    asked = catalogue.requests(requests)
    index = Hnsw(catalogue.item_vectors)
    default = catalogue.scorer("tower", "memory")
    leaf_attention = catalogue.scorer("attention", "tower", "memory", attention_levels=1)
    threads = native.threads()
    native.set_threads(1)
    try:
        contestants = {
            "ms_default": lambda request: default.search(request, k=K, beam_width=BEAM),
            "ms_hnsw": lambda request: index.search(catalogue.encoder.encode(request.histories), k=K),
            "ms_with_leaf_attention": lambda request: leaf_attention.search(request, k=K, beam_width=BEAM),
            "ms_encoder": lambda request: catalogue.encoder.encode(request.histories),
            "ms_tower_alone": _tower_alone(catalogue),
        }
        turns = {
            name: _in_turn(ask, asked, first=place * requests // len(contestants))
            for place, (name, ask) in enumerate(contestants.items())
        }
        results = {name: float(np.median(taken)) * 1e3 for name, taken in take_turns(turns, turns=requests).items()}
    finally:
        native.set_threads(threads)
    return {
        "items": items,
        "followers": followers,
        "link_bytes_per_item": 2 * LINK_BYTES * followers,
        **results,
        "ms_over_hnsw": results["ms_default"] / results["ms_hnsw"],
        "ms_over_hnsw_with_leaf_attention": results["ms_with_leaf_attention"] / results["ms_hnsw"],
        "recall_default": recall_of_beam(default, asked[:SCANNED]),
        "recall_hnsw": recall_of_hnsw(index, catalogue, asked[:SCANNED]),
    }


def recall_of_beam(scorer: NativeScorer, asked: list[Requests]) -> float:
    """The share of an exact scan's top 20 that the beam finds."""
    found = [scorer.search(request, k=K, beam_width=BEAM).items[0] for request in asked]
    exact = [scorer.scan(request, k=K).items[0] for request in asked]
    return _recall(found, exact)


def recall_of_hnsw(index: Hnsw, catalogue: Catalogue, asked: list[Requests]) -> float:
    """The share of the items with the 20 largest inner products that the graph finds."""
    queries = np.concatenate([catalogue.encoder.encode(request.histories) for request in asked])
    scores = queries @ catalogue.item_vectors.T
    exact = np.argpartition(-scores, min(K, scores.shape[1]) - 1, axis=1)[:, :K]
    return _recall(list(index.search(queries, k=K)), list(exact))


def _tower_alone(catalogue: Catalogue) -> Callable[[Requests], object]:
    scorer = catalogue.scorer("tower")
    return lambda request: scorer.search(request, k=K, beam_width=BEAM)


def _in_turn(ask: Callable[[Requests], object], asked: list[Requests], *, first: int) -> Callable[[], object]:
    upcoming = cycle(asked[first:] + asked[:first])
    return lambda: ask(next(upcoming))


def _recall(found: list[Any], exact: list[Any]) -> float:
    return float(np.mean([np.isin(best, own).mean() for own, best in zip(found, exact, strict=True)]))


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", help="sizes of catalogues; default: 10^4, 10^5 and 10^6")
    parser.add_argument("--followers", type=int, help="length of both lists of each item, whatever they take")
    room = ModelSettings().memory_megabytes
    parser.add_argument("--link-megabytes", type=float, default=room, help="room for all lists of a catalogue")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument(
        "--quick", action="store_true", help="a catalogue of 1,000 items, unless --items says otherwise"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sizes = arguments.items or (QUICK_SIZES if arguments.quick else SIZES)
    rows = [
        measure_frontier(
            items=items,
            followers=arguments.followers or followers_within(arguments.link_megabytes, items=items),
            requests=arguments.requests,
        )
        for items in sizes
    ]
    accuracy = measured_accuracy()
    settings = {"beam": BEAM, "k": K, "history": HISTORY_LENGTH, "requests": arguments.requests}
    results = {
        "catalogues": rows,
        "ms_over_hnsw": {str(row["items"]): row["ms_over_hnsw"] for row in rows},
        "accuracy_of_default": accuracy.ratio,
        "accuracy_basis": accuracy.basis,
    }
    report(settings, results, as_json=arguments.json)


if __name__ == "__main__":
    main()
