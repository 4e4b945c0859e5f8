"""How retrieval grows with the catalogue: the same network over trees of 10^4 to 10^7 items, random weights.

    python -m benchmarks.scaling --json

bytes_per_item counts the node table and the two arrays that make the tree; the table of raw ids is not part of it.
Half precision is measured beside it: time, bytes, and how much of the top 20 stays.
"""

import argparse
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamtree.native.attention import AttentionArrays
from beamtree.native.network import Network
from beamtree.native.score import KernelScore
from beamtree.tree.item_tree import ItemTree
from benchmarks.measure import report, take_turns
from benchmarks.models import SETTINGS, asked_by, random_subject

K = 20
USERS = 20
LARGEST_SCAN = 1_000_000


def measure_size(network: Network, *, items: int, beam: int, turns: int) -> dict[str, Any]:
    """One row of the table: a search for one user, the scan for comparison, and the bytes of an item."""
    generator = np.random.default_rng(items)
    tree = ItemTree(2, generator.permutation(items).astype(np.int32))
    table = generator.standard_normal((tree.num_nodes, SETTINGS.embedding_dim), dtype=np.float32)
    table *= 0.3
    halved = table.astype(np.float16)
    full, half = (KernelScore(tree, attention=AttentionArrays(network, rows)) for rows in (table, halved))
    histories = generator.integers(0, items, (USERS, SETTINGS.attention_history)).astype(np.int32)
    width = np.full(1, beam)

    def search(score: KernelScore) -> None:
        for history in histories:
            score.beam_search(score.requests(asked_by(history[None])), k=K, beam_widths=width)

    seconds = take_turns({"full": lambda: search(full), "half": lambda: search(half)}, turns=turns)
    tree_bytes = tree.item_at_leaf.nbytes + tree.leaf_of_item.nbytes
    row: dict[str, Any] = {
        "items": items,
        "levels": tree.height,
        "ms": min(seconds["full"]) / USERS * 1e3,
        "bytes_per_item": (table.nbytes + tree_bytes) / items,
        "float16_ms": min(seconds["half"]) / USERS * 1e3,
        "float16_bytes_per_item": (halved.nbytes + tree_bytes) / items,
        **float16_effect(full, half, histories, beam=beam),
    }
    scans = [scan_seconds(full, histories[:1]) for _ in range(3 if items <= LARGEST_SCAN else 1)]
    row["exact_ms"] = min(scans) * 1e3
    row["exact_over_beam"] = row["exact_ms"] / row["ms"]
    return row


def scan_seconds(score: KernelScore, history: NDArray[np.int32]) -> float:
    """Seconds of one exact scan."""
    started = time.perf_counter()
    score.exact_scan(score.requests(asked_by(history)), k=K)
    return time.perf_counter() - started


def float16_effect(
    full: KernelScore, half: KernelScore, histories: NDArray[np.int32], *, beam: int
) -> dict[str, float]:
    """Share of the top k that half precision keeps, and its largest error of a kept item's score."""
    widths = np.full(len(histories), beam)
    items, scores = full.beam_search(full.requests(asked_by(histories)), k=K, beam_widths=widths)
    half_items, half_scores = half.beam_search(half.requests(asked_by(histories)), k=K, beam_widths=widths)
    kept, errors = 0, [0.0]
    for row in range(len(histories)):
        exact = dict(zip(items[row].tolist(), scores[row].tolist(), strict=True))
        rounded = dict(zip(half_items[row].tolist(), half_scores[row].tolist(), strict=True))
        kept += len(exact.keys() & rounded.keys())
        errors += [abs(exact[item] - rounded[item]) for item in exact.keys() & rounded.keys()]
    return {
        "float16_kept_of_top_20": kept / items.size,
        "float16_score_error": max(errors),
        "score_spread": float(scores.std()),
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--beam", type=int, default=150)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    network = random_subject(items=64).attention().network
    rows = [measure_size(network, items=items, beam=arguments.beam, turns=arguments.turns) for items in arguments.sizes]
    results = {"rows": rows, "slowdown_largest_over_smallest": rows[-1]["ms"] / rows[0]["ms"]}
    report({"beam": arguments.beam, "k": K, "users": USERS}, results, as_json=arguments.json)


if __name__ == "__main__":
    main()
