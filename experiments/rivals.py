"""Is the score ahead of every rival? Fit a preset on a log, ask all rivals the same, and keep the line.

    python -m experiments.rivals ml-1m --seeds 0 1 2
    python -m experiments.rivals ml-100k --folds 10
    python -m experiments.rivals --table

Who is held out does not depend on the seed, so that the spread over seeds is that of training. With --folds every user
is tested once, and the interval is over all of them. GRU4Rec is the very encoder that the fit trained: the same time
and the same luck. With --encoders, fits share trained encoders, whose seconds count for each of them. A line has the
metrics of all systems on the test users, the ratio of the model to each rival with its 95 % interval (paired bootstrap
over users), and all settings. A line that is there already is not measured again.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from beamtree.artefact import Artefact
from beamtree.baselines.comparison import compare
from beamtree.baselines.protocol import Budget
from beamtree.baselines.registry import choose_baselines
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.groups import find_long_users
from beamtree.data.interactions import read_log
from beamtree.data.prepare import prepare_log
from beamtree.data.split import HeldOut, Spans, Split
from beamtree.errors import InputError
from beamtree.evaluation.answers import BeamSearch, ExactScan
from beamtree.evaluation.intervals import relative_difference
from beamtree.evaluation.metrics import Metrics
from beamtree.evaluation.protocol import evaluate, split_dataset
from beamtree.fitting.fit import fit_model
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.training.events import Event, PartsWeighed, Validated
from beamtree.types import Float64Array
from experiments.lines import Line, append_lines, read_lines, table

ROOT = Path(__file__).resolve().parents[1]
MODEL, SCAN = "beamtree", "beamtree, exact scan"
METRICS = ("f@20", "ndcg@20")
DATA_VARIABLE = "BEAMTREE_DATA"
PerUser = dict[str, dict[str, Float64Array]]
"""Metrics of each user, by system and name."""


def data_folder() -> Path:
    """The folder that holds the data sets: named by BEAMTREE_DATA, else shared/data beside the checkout."""
    named = os.environ.get(DATA_VARIABLE)
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}. Name the one with the data sets in {DATA_VARIABLE}.")
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for and has no line yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help="logs: folders of the data folder")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--folds", type=int, help="instead of one split, so many, so that every user is tested once")
    parser.add_argument("--preset", default="default", help="settings to begin with")
    parser.add_argument("--set", dest="assignments", action="append", default=[], help="section.key=value")
    parser.add_argument("--name", default=MODEL, help="what the system is called where it is not the preset as it is")
    parser.add_argument("--baselines", default="all", help="all, simple, none, or names with commas between")
    parser.add_argument("--encoders", type=Path, help="a folder of trained encoders, which fits of a seed then share")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "rivals.jsonl")
    parser.add_argument("--table", action="store_true", help="print the lines that are there as a table")
    given = parser.parse_args(arguments)
    for data in given.data:
        for seed in given.seeds:
            key = {"data": data, "name": given.name, "preset": given.preset, "seed": seed, "folds": given.folds}
            if any(key.items() <= line.items() for line in read_lines(given.out)):
                print(f"{key} is measured already", file=sys.stderr)
                continue
            measured = measure(
                data, key, assignments=given.assignments, baselines=given.baselines, encoders=given.encoders
            )
            append_lines(given.out, [measured])
            print(_sentence(measured), flush=True)
    if given.table:
        lines = read_lines(given.out)
        print(f"{as_table(lines)}\n\n{as_table_of_ratios(lines)}")
    return 0


def measure(
    data: str, key: Mapping[str, Any], *, assignments: Sequence[str], baselines: str, encoders: Path | None = None
) -> Line:
    """Fit and ask everybody, on one split or on all folds; the line. encoders: a folder of those that are trained."""
    settings = [f"training.seed={key['seed']}", "data.split_seed=0", *assignments]
    config = Config.load(preset=key["preset"], assignments=settings)
    log = read_log(str(data_folder() / data / "interactions.parquet"), config.log)
    prepared = prepare_log(log, config=config)
    found: list[PerUser] = []
    seconds: dict[str, float] = {}
    training: list[Mapping[str, Any]] = []
    for split in _splits(prepared.dataset, prepared.config, folds=key["folds"]):
        with kept_encoders(encoders) as folder:
            per_user, took, trained = _measure_split(
                prepared.dataset, split, config=prepared.config, baselines=baselines, encoders=folder
            )
        found.append(per_user)
        training.append(trained)
        seconds = {name: seconds.get(name, 0.0) + value for name, value in took.items()}
    systems = [name for name in found[0] if all(name in per_user for per_user in found)]
    together = {
        name: {metric: np.concatenate([per_user[name][metric] for per_user in found]) for metric in METRICS}
        for name in systems
    }
    return {
        **key,
        "users": len(together[MODEL]["f@20"]),
        "metrics": {
            name: {metric: round(float(values.mean()), 5) for metric, values in of_system.items()}
            for name, of_system in together.items()
        },
        "ratios": {
            name: {
                metric: [
                    round(1 + bound, 4)
                    for bound in relative_difference(together[MODEL][metric], together[name][metric], seed=0)
                ]
                for metric in METRICS
            }
            for name in systems
            if name != MODEL and together[name]["f@20"].any()
        },
        "seconds": {name: round(value / len(found), 1) for name, value in seconds.items()},
        "weighing": [trained.get("weighing") for trained in training],
        "commit": commit(),
        "settings": prepared.config.model_dump(mode="json"),
    }


def timed_fit(dataset: Dataset, split: Split, *, config: Config, encoders: Path) -> tuple[Artefact, float]:
    """A model and the seconds that it took, those of an encoder that was kept in `encoders` included."""
    started = time.monotonic()
    artefact = fit_model(
        dataset,
        split,
        config=config,
        work=None,
        listen=print_event,
        should_stop=lambda: False,
        estimator_cache=encoders,
    )
    seconds = time.monotonic() - started
    if artefact.training.get("estimator_reused"):
        seconds += artefact.training["estimator_seconds"]
    return artefact, seconds


def _measure_split(
    dataset: Dataset, split: Split, *, config: Config, baselines: str, encoders: Path
) -> tuple[PerUser, dict[str, float], Mapping[str, Any]]:
    """Metrics of each test user by system, seconds by system, and how the model's training went."""
    artefact, seconds = timed_fit(dataset, split, config=config, encoders=encoders)
    took = {MODEL: seconds}
    engine = Engine(build_scorer(artefact.weights, artefact.tree, config=config), artefact.tree)
    own: dict[str, Metrics] = {
        MODEL: evaluate(BeamSearch(engine, config.retrieval.beam_width), dataset, split.test, config=config),
        SCAN: evaluate(ExactScan(engine), dataset, split.test, config=config),
    }
    chosen = choose_baselines(baselines, dataset, config=config)
    budget = Budget(config, directory=encoders)
    compared = compare(own, chosen, dataset, split, users=split.test, budget=budget)
    per_user = {name: {metric: metrics.per_user[metric] for metric in METRICS} for name, metrics in compared.items()}
    return per_user, took | dict(compared.seconds), artefact.training


@contextmanager
def kept_encoders(folder: Path | None) -> Iterator[Path]:
    """That folder, or one that is gone afterwards."""
    if folder is not None:
        yield folder
        return
    with TemporaryDirectory(prefix="beamtree-rivals-") as own:
        yield Path(own)


def _splits(dataset: Dataset, config: Config, *, folds: int | None) -> Iterator[Split]:
    """The split of the settings, or one for each fold, which is tested: the next one is chosen by, the others teach."""
    if folds is None:
        yield split_dataset(dataset, config=config)
        return
    sequences = dataset.sequences
    long = find_long_users(sequences, min_held_out=config.data.decided_min_held_out)
    shuffled = np.random.default_rng(config.split_seed).permutation(long).astype(np.int32)
    groups = [np.sort(group) for group in np.array_split(shuffled, folds)]
    middle = sequences.offsets[:-1] + sequences.lengths // 2
    for fold in range(folds):
        test, validation = groups[fold], groups[(fold + 1) % folds]
        end = sequences.offsets[1:].copy()
        end[test], end[validation] = middle[test], middle[validation]
        everybody = np.arange(len(sequences), dtype=np.int32)

        def held_out(users: Any) -> HeldOut:
            start, cut, last = sequences.offsets[users], middle[users], sequences.offsets[users + 1]
            return HeldOut(users, start, cut, cut, last)

        train = Spans(everybody, sequences.offsets[:-1].copy(), end)
        yield Split(train, held_out(validation), held_out(test), 1, f"fold {fold + 1} of {folds}")


def as_table(lines: Sequence[Line]) -> str:
    """One row for each log and system, means over seeds, those of the ends of intervals too."""
    rows = []
    for data, name in sorted({(line["data"], line["name"]) for line in lines}):
        own = [line for line in lines if (line["data"], line["name"]) == (data, name)]
        rivals = sorted({rival for line in own for rival in line["ratios"] if rival != SCAN})
        means = {
            rival: np.mean([line["metrics"][rival]["f@20"] for line in own if rival in line["metrics"]])
            for rival in rivals
        }
        best = max(rivals, key=lambda rival: means[rival]) if rivals else None
        row = [data, name, str(len(own)), str(own[0]["users"])]
        for metric in METRICS:
            values = [line["metrics"][MODEL][metric] for line in own]
            row.append(f"{np.mean(values):.4f}" + (f" ± {np.std(values):.4f}" if len(own) > 1 else ""))
        row.append("" if best is None else f"{best} {means[best]:.4f}")
        for metric in METRICS:
            ratios = [line["ratios"][best][metric] for line in own if best in line["ratios"]]
            mean, low, high = np.mean(ratios, axis=0) if ratios else (np.nan,) * 3
            row.append(f"{mean:.3f} [{low:.3f}, {high:.3f}]" if ratios else "")
        row.append(f"{np.mean([1 / line['ratios'][SCAN]['f@20'][0] for line in own]) ** -1:.4f}")
        row.append(f"{np.mean([line['seconds'][MODEL] for line in own]):.0f}")
        rows.append(row)
    head = [
        "log",
        "system",
        "lines",
        "users",
        "F@20",
        "NDCG@20",
        "best rival, F@20",
        "ratio of F",
        "ratio of NDCG",
        "beam / scan",
        "seconds",
    ]
    return table(head, rows)


def as_table_of_ratios(lines: Sequence[Line]) -> str:
    """One row for each line: the ratio of F@20 to every rival, with its interval."""
    rivals = list(dict.fromkeys(name for line in lines for name in line["ratios"] if name != SCAN))
    rows = []
    for line in sorted(lines, key=lambda line: (line["data"], line["name"], line["seed"])):
        ratios = {name: ratio["f@20"] for name, ratio in line["ratios"].items()}
        cells = [
            f"{ratios[name][0]:.3f} [{ratios[name][1]:.3f}, {ratios[name][2]:.3f}]" if name in ratios else ""
            for name in rivals
        ]
        if any(cells):
            rows.append([line["data"], line["name"], str(line["seed"]), *cells])
    return table(["log", "system", "seed", *rivals], rows)


def _sentence(line: Line) -> str:
    ratios = {name: ratio["f@20"] for name, ratio in line["ratios"].items()}
    own = line["metrics"][MODEL]
    return f"{line['data']} seed {line['seed']}: F@20 {own['f@20']:.4f} NDCG@20 {own['ndcg@20']:.4f}; ratios {ratios}"


def print_event(event: Event) -> None:
    """Print what training validated and how the parts were weighed."""
    if isinstance(event, Validated):
        print(f"  {event.learner} {event.epoch:.2f} validation F@20 {event.metrics['f@20']:.4f}", flush=True)
    if isinstance(event, PartsWeighed):
        print(f"  weighed: validation F@20 {event.metric} {dict(event.weights)}", flush=True)


def commit() -> str:
    """The commit that is measured."""
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
