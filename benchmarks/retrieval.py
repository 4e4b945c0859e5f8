"""Beam search in the kernels: against the same search written out in torch, and by what the score is made of.

    python -m benchmarks.retrieval --items 7129 --beam 150 --json

Speedups are those of the attention network at the sizes of the preset `paper`. score_cost is the time of a request with
the default score, tower and memory, over that with the attention network on all levels, at the default sizes, in a
random catalogue of as many items; score_cost_with_leaf_attention has the network on the leaves of the last beam too.
"""

import argparse

import numpy as np

from benchmarks.measure import report, take_turns
from benchmarks.models import asked_by, random_subject
from benchmarks.plain import PlainRetriever
from benchmarks.score_cost import measure_score_cost

K = 20


def measure_retrieval(*, items: int, beam: int, users: int, turns: int) -> dict[str, float]:
    """Milliseconds per user alone and in a batch, and how many times faster than plain that is."""
    subject = random_subject(items=items)
    score, plain = subject.score(), PlainRetriever(subject.torch_model, subject.tree)
    one, many = subject.histories(1), subject.histories(users, seed=1)
    asked_one, asked_many = score.requests(asked_by(one)), score.requests(asked_by(many))
    width_one, width_many = np.full(1, beam), np.full(users, beam)

    def single() -> None:
        for _ in range(20):
            score.beam_search(asked_one, k=K, beam_widths=width_one)

    best = {
        name: min(seconds)
        for name, seconds in take_turns(
            {
                "single": single,
                "batch": lambda: score.beam_search(asked_many, k=K, beam_widths=width_many),
                "plain_single": lambda: plain.beam_search(one, beam=beam, k=K),
                "plain_batch": lambda: plain.beam_search(many, beam=beam, k=K),
            },
            turns=turns,
        ).items()
    }
    latencies = take_turns({"single": lambda: score.beam_search(asked_one, k=K, beam_widths=width_one)}, turns=1000)
    ms_single, ms_batch = best["single"] / 20 * 1e3, best["batch"] / users * 1e3
    plain_single, plain_batch = best["plain_single"] * 1e3, best["plain_batch"] / users * 1e3
    return {
        "ms_single": ms_single,
        "median_ms_single": float(np.median(latencies["single"])) * 1e3,
        "p99_ms_single": float(np.quantile(latencies["single"], 0.99)) * 1e3,
        "ms_batch": ms_batch,
        "plain_ms_single": plain_single,
        "plain_ms_batch": plain_batch,
        "speedup_single": plain_single / ms_single,
        "speedup_batch": plain_batch / ms_batch,
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=7129)
    parser.add_argument("--beam", type=int, default=150)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = measure_retrieval(
        items=arguments.items, beam=arguments.beam, users=arguments.users, turns=arguments.turns
    )
    results |= measure_score_cost(items=arguments.items, beam=arguments.beam)
    settings = {"items": arguments.items, "beam": arguments.beam, "users": arguments.users, "k": K}
    report(settings, results, as_json=arguments.json)


if __name__ == "__main__":
    main()
