"""A whole training step in the kernels against the same step written out in torch: negatives to updated weights.

    python -m benchmarks.training --items 7129 --batch 100 --negatives 70 --json

Large catalogues run without plain, which would not fit. step_fraction_of_sgemm divides the step's necessary operations
(factored scorer and perceptron, forward, backward and sampling, merged draws, shared ancestors) by its time, and that
by torch's matrix product in the same run. cost_of_ten_targets is the time of a top-down step with ten targets of each
history over that with one.
"""

import argparse
import resource
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from beamtree.config import TrainingSettings
from beamtree.native.training import Gradients, Negatives, learn_batch
from beamtree.training.instances import Batch
from beamtree.training.native_learner import NativeLearner
from benchmarks.measure import SGEMM_FLOPS, report, sgemm, take_turns
from benchmarks.models import SETTINGS, Subject, random_subject
from benchmarks.plain import PlainRetriever

LARGEST_PLAIN = 200_000
SAMPLERS = {"u": "uniform", "t": "top_down"}


def necessary_flops(gradients: Gradients) -> float:
    """Operations of a step's factored scorer: forward for all that was scored, twice that for all that was learned."""
    size, hidden, layers = SETTINGS.embedding_dim, SETTINGS.attention_hidden, SETTINGS.layers
    per_pair = 2 * (hidden * size + layers[0])
    per_node = 2 * (size * layers[0] + layers[0] * layers[1] + layers[1] * layers[2] + layers[2])
    per_history_row = 2 * size * (2 * hidden + layers[0])
    work = gradients.work
    forward = per_pair * work["forward_pairs"] + per_node * work["forward_nodes"] + per_history_row * work["prepared"]
    backward = per_pair * work["backward_pairs"] + per_node * work["backward_nodes"]
    return forward + 2 * (backward + per_history_row * work["learned"])


def measure_training(*, items: int, batch: int, negatives: int, turns: int) -> dict[str, Any]:
    """Instances per second of both samplers, their speedup over plain and their share of sgemm."""
    subject = random_subject(items=items)
    histories = subject.histories(batch)
    ten_targets = np.random.default_rng(1).integers(0, items, (batch, 10)).astype(np.int32)
    targets = np.ascontiguousarray(ten_targets[:, 0])
    instances = Batch(histories=histories, targets=targets)
    contestants: dict[str, Callable[[], object]] = {}
    flops: dict[str, float] = {}
    for name, sampler in SAMPLERS.items():
        drawn = Negatives(np.full(subject.tree.height, negatives), "uniform" if sampler == "uniform" else "top_down")
        learner = NativeLearner(
            random_subject(items=items).torch_model if items <= LARGEST_PLAIN else subject.torch_model,
            subject.tree,
            negatives=drawn,
            settings=TrainingSettings(),
            model_settings=SETTINGS,
        )
        contestants[name] = _steps_of(learner, instances)
        flops[name] = necessary_flops(
            learn_batch(subject.native_model(), histories=histories, targets=targets, negatives=drawn, seed=0)
        )
        contestants[name]()
        if name == "t":
            contestants["ten_targets"] = _steps_of(learner, Batch(histories=histories, targets=ten_targets))
    results: dict[str, Any] = {"peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}
    contestants["sgemm"] = sgemm()
    if items <= LARGEST_PLAIN:
        contestants |= _plain_steps(subject, instances, negatives)
    seconds = {name: min(times) for name, times in take_turns(contestants, turns=turns).items()}
    for name in SAMPLERS:
        results[f"instances_per_second_{name}"] = batch / seconds[name]
        results[f"ms_{name}"] = seconds[name] * 1e3
        share = flops[name] / seconds[name] / (SGEMM_FLOPS / seconds["sgemm"])
        results["step_fraction_of_sgemm" if name == "t" else "step_fraction_of_sgemm_u"] = share
        if items <= LARGEST_PLAIN:
            results[f"plain_ms_{name}"] = seconds[f"plain_{name}"] * 1e3
            results[f"speedup_{name}"] = seconds[f"plain_{name}"] / seconds[name]
    results["cost_of_ten_targets"] = seconds["ten_targets"] / seconds["t"]
    return results


def _steps_of(learner: NativeLearner, instances: Batch) -> Callable[[], object]:
    steps = iter(range(10**9))
    return lambda: learner.step(instances, step=next(steps), learning_rate=1e-4)


def _plain_steps(subject: Subject, instances: Batch, negatives: int) -> dict[str, Callable[[], object]]:
    plain = PlainRetriever(subject.torch_model.train(), subject.tree)
    optimiser = torch.optim.Adam(subject.torch_model.parameters(), lr=1e-4, weight_decay=1e-4)

    def step(learn: Callable[..., float]) -> None:
        optimiser.zero_grad()
        learn(instances.histories, instances.targets, negatives=negatives)
        optimiser.step()

    return {"plain_u": lambda: step(plain.step_uniform), "plain_t": lambda: step(plain.step_top_down)}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=7129)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--negatives", type=int, default=70)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = measure_training(
        items=arguments.items, batch=arguments.batch, negatives=arguments.negatives, turns=arguments.turns
    )
    settings = {"items": arguments.items, "batch": arguments.batch, "negatives": arguments.negatives}
    report(settings, results, as_json=arguments.json)


if __name__ == "__main__":
    main()
