"""Counted memory beside what was learned: counted in the training spans, weighed by what validation users get."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from beamtree.evaluation.answers import BeamSearch
from beamtree.evaluation.protocol import evaluate
from beamtree.fitting.calibration import FEWEST_USERS, calibrate
from beamtree.fitting.run import FitRun
from beamtree.fitting.validation import CUTOFFS, sample_users
from beamtree.model.memory import Memory, MemoryWeights
from beamtree.model.part import MakePartOnTree
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.training.events import MemoryWeighed
from beamtree.training.trainer import SELECTION_METRIC
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray


@dataclass(frozen=True)
class Remembered:
    """The memory's arrays by part and name, and what a model keeps of how its weights came about."""

    arrays: dict[str, AnyArray]
    report: dict[str, Any]


def remember(
    run: FitRun, learned: Mapping[str, AnyArray], tree: ItemTree, *, parts: Mapping[str, MakePartOnTree] | None
) -> Remembered:
    """Count, and weigh beside the learned arrays, which may be none; parts: makes learned parts of other people."""
    started, config = time.monotonic(), run.config
    memory = Memory.count(
        run.dataset.sequences, run.split.train, num_items=len(run.dataset.items), settings=config.memory
    )
    users = sample_users(run.split.validation, config=config, seed=config.training.seed)
    on_step = run.stop_while("weighing the memory")

    def measure(weights: MemoryWeights) -> float:
        on_step()
        arrays = {**learned, **_named(memory.weighed(weights))}
        engine = Engine(build_scorer(arrays, tree, config=config, parts=parts), tree)
        search = BeamSearch(engine, config.retrieval.beam_width)
        return evaluate(search, run.dataset, users, config=config, cutoffs=CUTOFFS)[SELECTION_METRIC]

    calibrated = calibrate(
        measure if len(users) >= FEWEST_USERS else None,
        config.memory,
        beside_learned=bool(learned),
        repeats_can_return=not config.retrieval.excludes_seen,
    )
    arrays = _named(memory.weighed(calibrated.weights))
    seconds = time.monotonic() - started
    weights = asdict(calibrated.weights)
    run.listen(MemoryWeighed(weights, calibrated.metric, seconds))
    report = {
        "weights": weights,
        "validation": calibrated.metric,
        "trials": len(calibrated.trials),
        "links": len(memory.transitions.items) + len(memory.company.items),
        "bytes": sum(array.nbytes for array in arrays.values()),
        "seconds": round(seconds, 1),
    }
    return Remembered(arrays, report)


def _named(memory: Memory) -> dict[str, AnyArray]:
    return {f"memory/{name}": array for name, array in memory.arrays().items()}
