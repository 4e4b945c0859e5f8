"""How long the exported search takes in ONNX Runtime, beside the engine, in the same run.

    python -m benchmarks.onnx --json

Paper sizes, random weights, full histories. Both sides take turns, so that a busy machine slows both.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl

from beamtree import native
from beamtree.artefact import Artefact
from beamtree.config import Config
from beamtree.data.requests import Histories, Requests
from beamtree.export.onnx import export_onnx
from beamtree.model.score import ATTENTION, build_score
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.tree.build import plant, random_order

BATCH = 50


def random_artefact(num_items: int, *, seed: int = 0) -> Artefact:
    """An untrained model of the paper's sizes."""
    config = Config.preset(
        "paper",
        data={"min_held_out": 15},
        decided={"shuffle_ties": False},
        model={"network": {"normalisation": "none", "dropout": 0.0, "history_table": "separate"}},
        retrieval={"exclude_seen": True},
    )
    tree = plant(random_order(num_items, generator=np.random.default_rng(seed)), branching=config.tree.branching)
    model = build_score(config, tree, seed=seed).parts[ATTENTION]
    return Artefact(
        config=config,
        weights={name: tensor.detach().numpy() for name, tensor in model.state_dict().items()},
        tree=tree,
        popularity=np.zeros(num_items, dtype=np.int64),
        item_table=pl.DataFrame({"item_id": np.arange(num_items)}),
        data_fingerprint="",
    )


def open_session(path: Path, *, threads: int) -> onnxruntime.InferenceSession:
    """The exported model in ONNX Runtime, on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def measure(*, num_items: int, beam_width: int, k: int, rounds: int, threads: int) -> dict[str, Any]:
    """Milliseconds per user, one user at a time and fifty together, and how many of the items are the same."""
    artefact = random_artefact(num_items)
    settings = artefact.config.model
    histories = (
        np.random.default_rng(1).integers(0, num_items, size=(BATCH, settings.attention_history)).astype(np.int32)
    )
    if native.is_available():
        native.set_threads(threads)
    engine = Engine(build_scorer(artefact.weights, artefact.tree, config=artefact.config), artefact.tree)
    with tempfile.TemporaryDirectory() as folder:
        files = export_onnx(artefact, Path(folder) / "model.onnx", k=k, beam_width=beam_width)
        session, file_mb = open_session(files.model, threads=threads), files.size / 1e6

    def by_engine(users: int) -> np.ndarray[Any, Any]:
        return engine.search(Requests(Histories.of_rows(histories[:users])), k=k, beam_width=beam_width).items

    def by_onnx(users: int) -> np.ndarray[Any, Any]:
        given = {"history": histories[:users].astype(np.int64), "length": np.full(users, histories.shape[1])}
        items: np.ndarray[Any, Any] = session.run(["items"], given)[0]
        return items

    same = float((by_engine(BATCH) == by_onnx(BATCH)).mean())
    single = _take_turns({"engine": by_engine, "onnx": by_onnx}, users=1, rounds=rounds * 5)
    batch = _take_turns({"engine": by_engine, "onnx": by_onnx}, users=BATCH, rounds=rounds)
    return {
        "items": num_items,
        "beam_width": beam_width,
        "k": k,
        "threads": threads,
        "engine": "native" if native.is_available() else "numpy",
        "engine_ms_single": single["engine"],
        "onnx_ms_single": single["onnx"],
        "onnx_over_engine_single": round(single["onnx"] / single["engine"], 2),
        "engine_ms_batch": batch["engine"],
        "onnx_ms_batch": batch["onnx"],
        "onnx_over_engine_batch": round(batch["onnx"] / batch["engine"], 2),
        "same_items": same,
        "file_mb": round(file_mb, 2),
    }


def _take_turns(searches: dict[str, Callable[[int], object]], *, users: int, rounds: int) -> dict[str, float]:
    """The median of milliseconds per user of each search."""
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    for _ in range(rounds):
        for name, search in searches.items():
            started = time.perf_counter()
            search(users)
            seconds[name].append(time.perf_counter() - started)
    return {name: round(statistics.median(taken) / users * 1e3, 3) for name, taken in seconds.items()}


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=7_129)
    parser.add_argument("--beam", type=int, default=150)
    parser.add_argument("-k", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    figures = measure(
        num_items=arguments.items,
        beam_width=arguments.beam,
        k=arguments.k,
        rounds=arguments.rounds,
        threads=arguments.threads,
    )
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:26}{value}")


if __name__ == "__main__":
    main()
