"""How much memory the full method takes at the size of a large catalogue: the peak of each stage.

    python -m benchmarks.memory --items 184530 --json

Synthetic sequences; sizes and method of the preset `paper`, with batch statistics only when asked for. Two rounds of a
few steps: one step of the estimator and its validation, learning from rectified labels, relearning from the
instances of a few dozen users; then a search and an exact scan. Peaks are those of the whole process, data included.
"""

import argparse
import resource
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl

from beamtree.config import Config
from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.interactions import InteractionLog
from beamtree.data.split import Spans, Split
from beamtree.evaluation.answers import BeamSearch, ExactScan
from beamtree.evaluation.protocol import evaluate, split_dataset
from beamtree.fitting.fit import fit_model
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.training.events import ESTIMATOR, Event, StepDone, TreeRelearned, Validated
from benchmarks.measure import report

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
ASKED_USERS = 200


@dataclass
class Peaks:
    """The largest resident size of this process since the mark before, by the name of the stage that ended."""

    mb: dict[str, float] = field(default_factory=dict)

    def end(self, stage: str) -> None:
        """A stage is over. Where the kernel cannot forget a peak, the later stages have the earlier ones in theirs."""
        self.mb[stage] = max(self.mb.get(stage, 0.0), peak_mb())
        if RESET.exists():
            RESET.write_text("5", encoding="ascii")

    def listen(self, event: Event) -> None:
        """Training tells when a stage is over."""
        match event:
            case StepDone(learner=learner) | Validated(learner=learner) if learner == ESTIMATOR:
                self.end("estimator")
            case StepDone():
                self.end("labels and learning")
            case Validated():
                self.end("validation")
            case TreeRelearned():
                self.end("relearning")


def peak_mb() -> float:
    """The largest resident size so far, or since it was last forgotten."""
    if STATUS.exists():
        lines = STATUS.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Go through the stages and print the peak of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=184_530)
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument("--length", type=int, default=40, help="interactions of each user")
    parser.add_argument("--instances", type=int, default=300, help="instances to learn from in each of two rounds")
    parser.add_argument(
        "--normalisation", default="none", choices=["none", "batch"], help="batch: as published, learned in torch"
    )
    parser.add_argument("--order", default="random", choices=["random", "clustering"], help="clustering: some minutes")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    settings = {name: value for name, value in vars(arguments).items() if name != "json"}
    peaks = run(**settings)
    report(settings, {"peak_rss_mb": peaks | {"whole": max(peaks.values())}}, as_json=arguments.json)


def run(*, items: int, users: int, length: int, instances: int, normalisation: str, order: str) -> dict[str, float]:
    """The peak of each stage in MB."""
    config = Config.preset(
        "paper",
        data={"protocol": "clean", "min_held_out": 2},
        decided={"shuffle_ties": False},
        retrieval={"exclude_seen": True},
        tree={"order": order},
        model={"network": {"normalisation": normalisation}},
        training={"rounds": 2, "max_instances": instances, "schedule": {"validations": 1}},
        estimator={"epochs": 1},
    )
    peaks = Peaks()
    peaks.end("imports")
    dataset = synthetic_dataset(items=items, users=users, length=length)
    one_batch = config.estimator.batch_positions_of(items) // config.encoder_history
    split = few_training_users(split_dataset(dataset, config=config), count=one_batch)
    peaks.end("data")
    artefact = fit_model(dataset, split, config=config, work=None, listen=peaks.listen, should_stop=lambda: False)
    engine = Engine(build_scorer(artefact.weights, artefact.tree, config=config), artefact.tree)
    asked = split.test.take(slice(0, ASKED_USERS))
    evaluate(BeamSearch(engine, config.retrieval.beam_width), dataset, asked, config=config)
    peaks.end("search")
    evaluate(ExactScan(engine), dataset, asked, config=config)
    peaks.end("exact scan")
    return peaks.mb


def synthetic_dataset(*, items: int, users: int, length: int) -> Dataset:
    """Users with random items, every item at least once where there are enough interactions."""
    generator = np.random.default_rng(0)
    drawn = np.concatenate([np.arange(items), generator.integers(0, items, size=max(0, users * length - items))])
    rows = pl.DataFrame(
        {
            "user_id": np.repeat(np.arange(users), length),
            "item_id": generator.permutation(drawn[: users * length]),
            "timestamp": np.tile(np.arange(length), users),
        }
    )
    return prepare_dataset(InteractionLog(rows), min_interactions=2)


def few_training_users(split: Split, *, count: int) -> Split:
    """The same split with only the first users to train on: enough for one batch of the estimator."""
    train = split.train
    return replace(split, train=Spans(train.user[:count], train.start[:count], train.end[:count]))


if __name__ == "__main__":
    main()
