"""Run experiments and keep what they measured.

    python -m experiments.run experiments/settings/dtr-t-ml-1m.toml --seeds 0 1 2

Each run appends its lines to results/runs.jsonl (trials to results/trials.jsonl): on the validation users one for each
round and one at the end, and one on the test users, which trials never get. A run whose lines are there is skipped, or
with --again done anew: then what stood there about the validation users goes to the trials, and the rest is dropped. A
run that was stopped goes on from its last checkpoint when the same command is given again.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.interactions import read_log
from beamtree.data.items import read_items
from beamtree.data.prepare import prepare_log
from beamtree.data.split import HeldOut
from beamtree.errors import BeamtreeError, InterruptedTraining
from beamtree.evaluation.protocol import evaluate, held_out_requests, split_dataset
from beamtree.training.events import Event, Listener, StepDone, Validated
from experiments.experiment import Experiment, data_folder, read_experiments
from experiments.journal import Journal
from experiments.results import Line, append_lines, has_settings, read_lines, replace_run, standing_line
from experiments.systems import SYSTEMS, Lesson, Trained
from experiments.theory import measure_theory

ROOT = Path(__file__).resolve().parents[1]
CODE = ("beamtree", "experiments", "CMakeLists.txt", "constraints.txt", "pyproject.toml")
ESTIMATOR_STAGES = ("estimator_seconds", "labels_seconds")
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all experiments of the settings files with all seeds; 0 when every one of them has its lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+", type=Path, help="settings files, run in this order")
    parser.add_argument("--seed", "--seeds", dest="seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "runs.jsonl", help="where results are kept")
    parser.add_argument("--trials", type=Path, help="where trials are kept; default: trials.jsonl beside --out")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "experiments", help="folder for checkpoints")
    parser.add_argument("--again", action="store_true", help="also run what has its lines, and replace these")
    given = parser.parse_args(arguments)
    trials = given.trials or given.out.with_name("trials.jsonl")
    failures = 0
    try:
        planned = [experiment for file in given.settings for experiment in read_experiments(file)]
    except BeamtreeError as error:
        print(error, file=sys.stderr)
        return 2
    for seed in given.seeds:
        for experiment in planned:
            out = trials if experiment.role == "trial" else given.out
            standing = standing_line(read_lines(out), experiment, seed=seed)
            if standing is not None and not given.again:
                changed = "" if has_settings(standing, experiment, seed=seed) else ", with OTHER settings than now"
                print(f"skipped, stands in {out.name}{changed}: {experiment.title(seed)}", flush=True)
                continue
            print(f"run {experiment.title(seed)}", flush=True)
            try:
                lines = run_experiment(experiment, seed=seed, work=given.work, listen=tell, fresh=standing is not None)
            except InterruptedTraining as stopped:
                print(f"{stopped} The same command goes on from there.", file=sys.stderr)
                return INTERRUPTED
            except BeamtreeError as error:
                print(f"failed: {experiment.title(seed)}: {error}", file=sys.stderr, flush=True)
                failures += 1
                continue
            if standing is not None and experiment.role != "trial":
                replace_run(out, trials, lines, why=f"of {standing['started'][:10]}")
            else:
                append_lines(out, lines)
            shutil.rmtree(given.work / experiment.name(seed))
            last = lines[-1]
            print(f"  {last['split']} F@20 {last['metrics']['f@20']:.4f} after {last['seconds']:.0f} s", flush=True)
    return 1 if failures else 0


def run_experiment(
    experiment: Experiment, *, seed: int, work: Path, listen: Listener, fresh: bool = False
) -> list[Line]:
    """Train and measure; the lines of the run, in the order of time. fresh: do not go on from a checkpoint."""
    commit, started = current_commit(), datetime.now(UTC).isoformat(timespec="milliseconds")
    config = experiment.config(seed)
    folder = work / experiment.name(seed)
    if fresh and folder.exists():
        shutil.rmtree(folder)
    dataset = load_dataset(experiment, config)
    split = split_dataset(dataset, config=config)
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / "journal.json", listen)
    try:
        trained = SYSTEMS[experiment.system](Lesson(dataset, split, config, folder, work / "estimators", journal))
    finally:
        journal.save()
    seconds, cpu_seconds = journal.seconds()
    common: Line = {
        "data": experiment.data.name,
        "system": experiment.system,
        "role": experiment.role,
        "seed": seed,
        "protocol": config.data.protocol,
        "study": None if experiment.point is None else vars(experiment.point),
        "note": experiment.note,
        "beam_width": config.retrieval.beam_width if trained.exact is not None else None,
        "commit": commit,
        "started": started,
        "starts": journal.starts,
        "settings": {
            "file": experiment.file,
            "data": vars(experiment.data),
            "config": config.model_dump(mode="json"),
        },
    }
    lines: list[Line] = [
        common
        | {
            "split": "validation",
            "final": False,
            "round": entry.number,
            "instances": entry.instances,
            "seconds": round(entry.seconds, 1),
            "metrics": _rounded(entry.metrics),
            **entry.details,
        }
        for entry in trained.rounds
    ]
    final = common | {
        "final": True,
        "round": trained.best_round,
        "rounds": max(1, len(trained.rounds)),
        "instances": trained.instances,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "stages": dict(trained.stages),
        "seconds_estimator": round(sum(trained.stages.get(name, 0.0) for name in ESTIMATOR_STAGES), 1) or None,
    }

    def asked(name: str, users: HeldOut) -> Line:
        measured = measure(trained, dataset, users, config=config, exact_users=experiment.exact_users)
        return final | {"split": name} | measured

    lines.append(asked("validation", split.validation))
    if experiment.role == "trial":
        return lines
    if trained.artefact is not None:
        lines[-1]["theory"] = measure_theory(trained.artefact, trained.estimator, dataset, split)
    return [*lines, asked("test", split.test)]


def load_dataset(experiment: Experiment, config: Config) -> Dataset:
    """The log as training sees it."""
    folder, source = data_folder(), experiment.data
    items = None if source.items is None else read_items(folder / source.items)
    return prepare_log(read_log(folder / source.log, config.log), config=config, items=items).dataset


def measure(trained: Trained, dataset: Dataset, users: HeldOut, *, config: Config, exact_users: int) -> Line:
    """Metrics on held-out users and, on some of them, an exact scan beside the search.

    unseen: the metrics when the items of a user's history are left out; seen@20: their share of the lists when not.
    """
    asked = held_out_requests(dataset, users, exclude_seen=False)
    measured: Line = {
        "users": len(users),
        "metrics": _rounded(evaluate(trained.answers, dataset, users, config=config)),
        "unseen": _rounded(evaluate(trained.answers, dataset, users, config=_without_seen(config))),
        "seen@20": round(share_among(trained.answers.search(asked, k=20).items, users.seen(dataset.sequences)), 6),
        "exact": None,
    }
    if trained.exact is not None and exact_users > 0:
        some = users.take(np.unique(np.linspace(0, len(users) - 1, min(exact_users, len(users))).astype(np.int64)))
        measured["exact"] = {
            "users": len(some),
            "beam": _rounded(evaluate(trained.answers, dataset, some, config=config)),
            "scan": _rounded(evaluate(trained.exact, dataset, some, config=config)),
        }
    return measured


def share_among(
    recommended: npt.NDArray[np.int32], items: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]
) -> float:
    """How much of what users were recommended (users, k), -1 = nothing, is among the items of the same user."""
    flat, offsets = items
    found = sum(
        int(np.isin(row[row >= 0], flat[start:end]).sum())
        for row, (start, end) in zip(recommended, pairwise(offsets), strict=True)
    )
    return found / max(1, int((recommended >= 0).sum()))


def current_commit() -> str:
    """The commit of the code, with +dirty where files that decide results differ from it; unknown outside git."""
    try:
        head = _git("rev-parse", "HEAD")
        return head + ("+dirty" if _git("status", "--porcelain", "--", *CODE) else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def tell(event: Event) -> None:
    """Print what happens, except for the single steps."""
    match event:
        case StepDone():
            return
        case Validated():
            text = (
                f"{event.learner}, step {event.step:,}, epoch {event.epoch:.2f}: loss {event.loss:.3f}, "
                f"validation F@20 {event.metrics['f@20']:.4f}{' *' if event.is_best else ''}"
            )
        case _:
            text = str(event)
    print(f"  {text}", flush=True)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _without_seen(config: Config) -> Config:
    """The same settings under the clean protocol, where nobody is recommended what is in their history."""
    data = config.data.model_copy(update={"protocol": "clean"})
    retrieval = config.retrieval.model_copy(update={"exclude_seen": True})
    return config.model_copy(update={"data": data, "retrieval": retrieval})


def _rounded(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: round(float(value), 6) for name, value in metrics.items()}


if __name__ == "__main__":
    sys.exit(main())
