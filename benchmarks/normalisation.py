"""Which normalisation and dropout the network should have: validation accuracy at equal instances, and what each costs.

    python -m benchmarks.normalisation LOG --instances 128000 --out results/normalisation.jsonl

One JSON line per variant, as it comes. Every variant learns as DTR(U), each target the very next interaction. Batch
statistics need a second pass and run in torch; the others in the kernels.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from beamtree.config import Config
from beamtree.data.dataset import prepare_dataset
from beamtree.data.interactions import read_interactions
from beamtree.evaluation.answers import BeamSearch
from beamtree.evaluation.protocol import describe_protocol, evaluate, split_dataset
from beamtree.fitting.fit import fit_model
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.training.events import Event, StepDone

VARIANTS = [(normalisation, dropout) for normalisation in ("layer", "none", "batch") for dropout in (0.0, 0.1)]


def main() -> None:
    """Train each variant on the same instances and measure it on the validation users."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--instances", type=int, default=128_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=["layer", "none", "batch"], help="measure this normalisation alone")
    parser.add_argument("--dropout", type=float, choices=[0.0, 0.1], help="measure this dropout alone")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    dataset = prepare_dataset(read_interactions(arguments.log))
    for normalisation, dropout in VARIANTS:
        if arguments.only not in (None, normalisation) or arguments.dropout not in (None, dropout):
            continue
        line = json.dumps(run(dataset, arguments, normalisation=normalisation, dropout=dropout))
        print(line, flush=True)
        if arguments.out is not None:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            with arguments.out.open("a", encoding="utf-8") as stream:
                stream.write(line + "\n")


def run(dataset: Any, arguments: argparse.Namespace, *, normalisation: str, dropout: float) -> dict[str, Any]:
    """Fit one variant; its settings, what it saw, how long it took, and its metrics."""
    base = Config.preset("small", data={"min_held_out": 15}, training={"seed": arguments.seed})
    split = split_dataset(dataset, config=base)
    spans = split.train
    per_epoch = int((spans.end - spans.start - split.first_target).clip(min=0).sum())
    config = Config.preset(
        "small",
        data={"min_held_out": 15},
        decided={"shuffle_ties": False},
        retrieval={"exclude_seen": True},
        model={
            "network": {
                "normalisation": normalisation,
                "dropout": dropout,
                "history_table": "shared",
                "embedding_init": "random",
            }
        },
        training={
            "method": "dtr-u",
            "target_horizon": 1,
            "learning_rate": 4e-3,
            "seed": arguments.seed,
            "epochs": arguments.instances / per_epoch,
            "max_instances": None,
            "schedule": {"validations": 4, "patience": 99},
        },
    )
    steps = 0

    def count(event: Event) -> None:
        nonlocal steps
        steps = event.step if isinstance(event, StepDone) else steps

    started = time.perf_counter()
    artefact = fit_model(dataset, split, config=config, work=None, listen=count, should_stop=lambda: False)
    seconds = time.perf_counter() - started
    engine = Engine(build_scorer(artefact.weights, artefact.tree, config=config), artefact.tree)
    search = BeamSearch(engine, config.retrieval.beam_width)
    metrics = evaluate(search, dataset, split.validation, config=config)
    return {
        "log": Path(arguments.log).parent.name,
        "preset": "small",
        "seed": arguments.seed,
        "normalisation": normalisation,
        "dropout": dropout,
        "instances": steps * config.training.batch_size,
        "seconds": round(seconds, 1),
        "split": "validation",
        "protocol": describe_protocol(config),
        "metrics": {name: round(value, 4) for name, value in metrics.items() if name.endswith("@20")},
    }


if __name__ == "__main__":
    main()
