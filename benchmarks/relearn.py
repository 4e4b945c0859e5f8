"""Scoring items for candidate places in a new tree, in the kernels against the same scores written out in torch.

python -m benchmarks.relearn --json
"""

import argparse
from functools import partial

import numpy as np
import torch

from beamtree.native.relearn import add_candidate_scores
from benchmarks.measure import report, take_turns
from benchmarks.models import random_subject
from benchmarks.plain import PlainRetriever

STRIDE = 7
PLAIN_AT_A_TIME = 20


def measure_relearning(*, items: int, instances: int, turns: int) -> dict[str, float]:
    """Milliseconds per instance at the first stage, from the root to 128 candidates, and the speedup over plain."""
    subject = random_subject(items=items)
    attention, plain = subject.attention(), PlainRetriever(subject.torch_model, subject.tree)
    histories = subject.histories(instances)
    targets = np.random.default_rng(1).integers(0, items, instances).astype(np.int32)
    sums = np.zeros((items, 2**STRIDE), dtype=np.float32)
    level = min(STRIDE, subject.tree.height)
    candidates = torch.arange(int(subject.tree.level_sizes[level]))

    def plain_scores() -> None:
        totals = torch.zeros(items, len(candidates))
        for first in range(0, instances, PLAIN_AT_A_TIME):
            part = histories[first : first + PLAIN_AT_A_TIME]
            scores = plain.candidate_log_softmax(part, candidates.expand(len(part), -1), level=level)
            totals.index_add_(0, torch.from_numpy(targets[first : first + PLAIN_AT_A_TIME]).long(), scores)

    native_scores = partial(
        add_candidate_scores,
        attention,
        sums,
        tree=subject.tree,
        histories=histories,
        targets=targets,
        group_of_item=np.zeros(items, dtype=np.int64),
        group_level=0,
        candidate_level=level,
    )
    best = {
        name: min(seconds)
        for name, seconds in take_turns({"native": native_scores, "plain": plain_scores}, turns=turns).items()
    }
    return {
        "ms_per_instance": best["native"] / instances * 1e3,
        "plain_ms_per_instance": best["plain"] / instances * 1e3,
        "instances_per_second": instances / best["native"],
        "speedup": best["plain"] / best["native"],
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=7129)
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = measure_relearning(items=arguments.items, instances=arguments.instances, turns=arguments.turns)
    settings = {"items": arguments.items, "instances": arguments.instances, "candidates": 2**STRIDE}
    report(settings, results, as_json=arguments.json)


if __name__ == "__main__":
    main()
