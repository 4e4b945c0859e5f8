"""Rectified labels by climbing from the target's leaf, against scoring every item first.

python -m benchmarks.labels --json

An untrained SASRec; ranks of the targets are log-uniform, as those of a trained one roughly are: it puts few of the
items that came next on top and most somewhere in between. Both ways include what SASRec makes of the histories.
"""

import argparse

import numpy as np
import torch

from beamtree.config import Config
from beamtree.model.next_item import NextItemModel
from beamtree.training.labels import climb, vectors_by_leaf
from beamtree.training.rectify import first_winning_level, scores_by_leaf
from beamtree.tree.build import plant
from benchmarks.measure import report, take_turns

HISTORIES = 128


def measure_labels(*, items: int, turns: int) -> dict[str, float]:
    """Milliseconds per instance both ways, and the speedup; both give the same labels."""
    settings = Config().estimator
    history_length = Config().model.attention_history
    generator = np.random.default_rng(0)
    tree = plant(generator.permutation(items).astype(np.int32), branching=2)
    estimator = NextItemModel(
        settings, num_items=items, history_length=history_length, generator=torch.Generator().manual_seed(0)
    )
    histories = generator.integers(0, items, size=(HISTORIES, history_length)).astype(np.int32)
    ranks = np.exp(generator.uniform(0, np.log(items), size=HISTORIES)).astype(np.int64) - 1
    leaf_scores = scores_by_leaf(estimator.scores(histories), tree)
    leaves = np.take_along_axis(np.argsort(-leaf_scores, axis=1), ranks[:, None], axis=1)[:, 0]
    leaf_vectors = vectors_by_leaf(estimator.item_vectors(), tree)

    def by_climbing() -> np.ndarray:
        return climb(estimator.expectations(histories), leaf_vectors, leaves, tree=tree)

    def by_scoring() -> np.ndarray:
        return first_winning_level(scores_by_leaf(estimator.scores(histories), tree), leaves, tree=tree)

    assert np.array_equal(by_climbing(), by_scoring())
    seconds = take_turns({"climbing": by_climbing, "scoring": by_scoring}, turns=turns)
    best = {name: min(times) for name, times in seconds.items()}
    return {
        "climbing_ms_per_instance": best["climbing"] / HISTORIES * 1e3,
        "scoring_ms_per_instance": best["scoring"] / HISTORIES * 1e3,
        "speedup": best["scoring"] / best["climbing"],
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=184_530)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = measure_labels(items=arguments.items, turns=arguments.turns)
    report({"items": arguments.items, "histories": HISTORIES}, results, as_json=arguments.json)


if __name__ == "__main__":
    main()
