"""The attention kernel against torch's matrix product, both in GFLOP/s of this machine in this run.

    python -m benchmarks.kernels --json

A call takes a batch of histories, each with nodes of its own, as a training step does; threads share the histories.
A node's attention counts as 2 * K * h * d operations, a pass backward as twice that, whatever is computed besides.
"""

import argparse

import numpy as np
import torch

from beamtree import native
from beamtree.native.network import Network
from benchmarks.measure import SGEMM_FLOPS, report, sgemm, take_turns
from benchmarks.models import SETTINGS, random_subject

HISTORIES = 16


def measure_kernels(*, nodes: int, turns: int) -> dict[str, float]:
    """GFLOP/s of the kernels and of sgemm, with one thread and with all."""
    subject = random_subject(items=64)
    network = Network.pack(
        dict(subject.torch_model.named_parameters()),
        windows=SETTINGS.windows,
        normalisation=SETTINGS.network.normalisation,
    )
    generator = np.random.default_rng(0)
    size, positions, hidden = SETTINGS.embedding_dim, SETTINGS.attention_history, SETTINGS.network.attention_hidden
    vectors = generator.normal(scale=0.3, size=(HISTORIES, positions, size)).astype(np.float32)
    places = generator.normal(scale=0.3, size=(HISTORIES, nodes, size)).astype(np.float32)
    incoming = generator.normal(size=(HISTORIES, positions, nodes)).astype(np.float32)
    weights = np.empty((HISTORIES, positions, nodes), dtype=np.float32)
    product = sgemm()

    def forward() -> None:
        network.attention_weights(vectors, places, out=weights)

    def backward() -> None:
        network.attention_gradients(vectors, places, d_weights=incoming)

    flops = 2 * positions * hidden * size * nodes * HISTORIES
    results: dict[str, float] = {}
    for threads, name in ((1, "1_thread"), (2, "2_threads")):
        torch.set_num_threads(threads)
        native.set_threads(threads)
        best = {
            contestant: min(seconds)
            for contestant, seconds in take_turns(
                {"sgemm": product, "forward": forward, "backward": backward}, turns=turns
            ).items()
        }
        results[f"sgemm_gflops_{name}"] = SGEMM_FLOPS / best["sgemm"] / 1e9
        results[f"forward_gflops_{name}"] = flops / best["forward"] / 1e9
        results[f"backward_gflops_{name}"] = 2 * flops / best["backward"] / 1e9
        results[f"fraction_of_sgemm_{name}"] = results[f"forward_gflops_{name}"] / results[f"sgemm_gflops_{name}"]
        results[f"backward_fraction_of_sgemm_{name}"] = (
            results[f"backward_gflops_{name}"] / results[f"sgemm_gflops_{name}"]
        )
    return results


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = measure_kernels(nodes=arguments.nodes, turns=arguments.turns)
    settings = {
        "K": SETTINGS.attention_history,
        "h": SETTINGS.network.attention_hidden,
        "d": SETTINGS.embedding_dim,
        "nodes": arguments.nodes,
        "histories": HISTORIES,
    }
    report(settings, results, as_json=arguments.json)


if __name__ == "__main__":
    main()
