"""A whole training step in the kernels against the same step written out in torch: negatives to updated weights.

    python -m benchmarks.training --items 7129 --batch 100 --negatives 70 --json

Large catalogues run without plain, which would not fit; share_of_small_tree is their top-down instances per second over
those with 7,129 items in the same run, and work_of_small_tree what the necessary operations alone would leave of them.
step_fraction_of_sgemm divides the step's necessary operations (factored scorer and perceptron, forward, backward and
sampling, merged draws, shared ancestors) by its time, and that by torch's matrix product in the same run.
cost_of_ten_targets is the time of a top-down step with ten targets of each history over that with one.
default_over_all_levels is the instances per second of learning the default score over those of the attention network on
all levels, by the preset that names the sizes of both.
"""

import argparse
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from beamtree.config import TrainingSettings
from beamtree.data.requests import Histories
from beamtree.model.score import ATTENTION, Score
from beamtree.native.training import Gradients, Negatives, learn_batch
from beamtree.training.instances import Batch
from beamtree.training.native_learner import NativeLearner
from benchmarks.default_training import measure_default_training
from benchmarks.measure import SGEMM_FLOPS, report, sgemm, take_turns
from benchmarks.models import SETTINGS, Subject, random_subject
from benchmarks.plain import PlainRetriever

SMALL_TREE = 7129
LARGEST_PLAIN = 200_000
SAMPLERS: dict[str, Literal["uniform", "top_down"]] = {"u": "uniform", "t": "top_down"}


def necessary_flops(gradients: Gradients) -> float:
    """Operations of a step's factored scorer: forward for all that was scored, twice that for all that was learned."""
    size, hidden, layers = SETTINGS.embedding_dim, SETTINGS.network.attention_hidden, SETTINGS.layers
    per_pair = 2 * (hidden * size + layers[0])
    per_node = 2 * (size * layers[0] + layers[0] * layers[1] + layers[1] * layers[2] + layers[2])
    per_history_row = 2 * size * (2 * hidden + layers[0])
    work = gradients.work
    forward = per_pair * work["forward_pairs"] + per_node * work["forward_nodes"] + per_history_row * work["prepared"]
    backward = per_pair * work["backward_pairs"] + per_node * work["backward_nodes"]
    return forward + 2 * (backward + per_history_row * work["learned"])


def measure_training(*, items: int, batch: int, negatives: int, turns: int) -> dict[str, Any]:
    """Instances per second of both samplers, their speedup over plain and their share of sgemm."""
    is_large = items > LARGEST_PLAIN
    subject = random_subject(items=items)
    contestants: dict[str, Callable[[], object]] = {}
    flops: dict[str, float] = {}
    for name, sampler in SAMPLERS.items():
        lesson = Lesson.prepare(
            subject if is_large else random_subject(items=items), sampler=sampler, batch=batch, negatives=negatives
        )
        contestants[name], flops[name] = lesson.step(), lesson.flops
        contestants[name]()
        if name == "t":
            contestants["ten_targets"] = lesson.step(targets=10)
    results: dict[str, Any] = {"peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}
    contestants["sgemm"] = sgemm()
    if is_large:
        small = Lesson.prepare(random_subject(items=SMALL_TREE), sampler="top_down", batch=batch, negatives=negatives)
        contestants["small_tree"], flops["small_tree"] = small.step(), small.flops
    else:
        contestants |= _plain_steps(subject, draw_instances(subject, batch=batch), negatives)
    seconds = {name: min(times) for name, times in take_turns(contestants, turns=turns).items()}
    for name in SAMPLERS:
        results[f"instances_per_second_{name}"] = batch / seconds[name]
        results[f"ms_{name}"] = seconds[name] * 1e3
        share = flops[name] / seconds[name] / (SGEMM_FLOPS / seconds["sgemm"])
        results["step_fraction_of_sgemm" if name == "t" else "step_fraction_of_sgemm_u"] = share
        if not is_large:
            results[f"plain_ms_{name}"] = seconds[f"plain_{name}"] * 1e3
            results[f"speedup_{name}"] = seconds[f"plain_{name}"] / seconds[name]
    if is_large:
        results["share_of_small_tree"] = seconds["small_tree"] / seconds["t"]
        results["work_of_small_tree"] = flops["small_tree"] / flops["t"]
    results["cost_of_ten_targets"] = seconds["ten_targets"] / seconds["t"]
    return results


@dataclass(frozen=True)
class Lesson:
    """A learner, what it learns from, and the necessary operations of one step with one target of each history."""

    learner: NativeLearner
    instances: Batch
    flops: float

    @classmethod
    def prepare(
        cls, subject: Subject, *, sampler: Literal["uniform", "top_down"], batch: int, negatives: int
    ) -> "Lesson":
        """A learner of its own for the subject's network."""
        drawn = Negatives(np.full(subject.tree.height, negatives), sampler)
        instances = draw_instances(subject, batch=batch)
        flops = necessary_flops(
            learn_batch(
                subject.attention(),
                subject.tree,
                histories=instances.histories.latest(SETTINGS.attention_history),
                targets=np.ascontiguousarray(instances.targets[:, :1]),
                negatives=drawn,
                seed=0,
            )
        )
        score = Score(subject.tree, {ATTENTION: subject.torch_model})
        learner = NativeLearner(score, negatives=drawn, settings=TrainingSettings())
        return cls(learner, instances, flops)

    def step(self, *, targets: int = 1) -> Callable[[], object]:
        """What takes one step with so many targets of each history, and the next one when called again."""
        chosen = np.ascontiguousarray(self.instances.targets[:, :targets])
        batch = Batch(histories=self.instances.histories, targets=chosen)
        steps = iter(range(10**9))

        def step() -> None:
            number = next(steps)
            gradients = self.learner.gradients(batch, step=number)
            self.learner.apply(gradients, step=number, learning_rate=1e-4)

        return step


def draw_instances(subject: Subject, *, batch: int) -> Batch:
    """Full histories and ten targets of each."""
    targets = np.random.default_rng(1).integers(0, subject.tree.num_items, (batch, 10)).astype(np.int32)
    return Batch(histories=Histories.of_rows(subject.histories(batch)), targets=targets)


def _plain_steps(subject: Subject, instances: Batch, negatives: int) -> dict[str, Callable[[], object]]:
    plain = PlainRetriever(subject.torch_model.train(), subject.tree)
    optimiser = torch.optim.Adam(subject.torch_model.parameters(), lr=1e-4, weight_decay=1e-4)
    targets = np.ascontiguousarray(instances.targets[:, 0])
    histories = instances.histories.latest(SETTINGS.attention_history)

    def step(learn: Callable[..., float]) -> None:
        optimiser.zero_grad()
        learn(histories, targets, negatives=negatives)
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
    results |= measure_default_training(items=arguments.items, turns=arguments.turns)
    settings = {"items": arguments.items, "batch": arguments.batch, "negatives": arguments.negatives}
    report(settings, results, as_json=arguments.json)


if __name__ == "__main__":
    main()
