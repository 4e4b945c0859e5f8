"""A study on logs: a settings file for the runner of `beamtree compare`, and lines in results/ of what it measured.

    python -m experiments.study baselines ml-1m --seeds 0 1 2
    python -m experiments.study baselines ml-100k --folds 10
    python -m experiments.study features ml-1m complete-journey
    python -m experiments.study baselines --table

The files of experiments/settings say which systems and which variants of the default, and with which settings. Held-out
users do not depend on the seed. A line that is there already is not measured again; results by user, fits and encoders
stay in --folder, where a study that was stopped goes on.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from beamtree.cli.task_table import results_folder, run_shown
from beamtree.compare.plan import plan_tasks
from beamtree.compare.summary import name_of
from beamtree.compare.systems import choose_systems
from beamtree.config import Config
from beamtree.config.loading import merge, read_toml
from beamtree.errors import InputError
from experiments import baselines, features
from experiments.lines import ROOT, Line, append_lines, read_lines

SETTINGS = ROOT / "experiments" / "settings"
DEFAULTS: dict[str, Any] = {"systems": "", "settings": [], "variants": {baselines.MODEL: []}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for and has no line yet, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=sorted(path.stem for path in SETTINGS.glob("*.toml")))
    parser.add_argument("logs", nargs="*", help="folders of BEAMTREE_DATA (default: ../shared/data)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--folds", type=int, help="fit on this number of splits, so that every user is tested once")
    parser.add_argument("--systems", help="baselines instead of those of the study: names with commas between")
    parser.add_argument("--preset", default="default", help="settings to begin with")
    parser.add_argument("--set", dest="assignments", action="append", default=[], help="section.key=value")
    parser.add_argument("--name", help="measure one model under this name, instead of the variants of the study")
    parser.add_argument("--budget-minutes", type=float, help="time limit of each fit; default: none")
    parser.add_argument("--items", type=Path, help="item table instead of the log's items.parquet")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "studies", help="for what the runner keeps")
    parser.add_argument("--out", type=Path, help="file of lines instead of the study's")
    parser.add_argument("--table", action="store_true", help="print all lines of the file as tables")
    given = parser.parse_args(arguments)
    study = DEFAULTS | read_toml(SETTINGS / f"{given.study}.toml")
    file, kind = given.out or ROOT / "results" / study["lines"], features if given.study == "features" else baselines
    for log in given.logs:
        measured = _measure(log, study, given, kept=read_lines(file))
        append_lines(file, measured)
        print(kind.tables(measured) if measured else f"{log} is measured already", flush=True)
    if given.table:
        print(kind.tables(read_lines(file)))
    return 0


def _measure(log: str, study: Mapping[str, Any], given: argparse.Namespace, *, kept: Sequence[Line]) -> list[Line]:
    """The lines of a log that are not kept yet; InputError where a fit failed."""
    data = Path(os.environ.get("BEAMTREE_DATA", ROOT.parent / "shared" / "data")) / log
    items, out = given.items or data / "items.parquet", given.folder / given.study / log
    variants = study["variants"] if given.name is None else {given.name: []}
    common: list[Line] = [{"data": log, "preset": given.preset, "seed": seed} for seed in given.seeds]
    if given.study == "features":
        kind, keys = features.line_of, [{**key, "items": items.name} for key in common]
        items = features.prepare_items(items, out)
    else:
        kind, keys = baselines.line_of, [{**key, "name": n, "folds": given.folds} for key in common for n in variants]
    keys = [key for key in keys if not any(key.items() <= line.items() for line in kept)]
    systems = study["systems"] if given.systems is None else given.systems
    assignments = ["data.split_seed=0", *study["settings"], *given.assignments]
    tasks = plan_tasks(
        str(data / "interactions.parquet"),
        str(items) if items.is_file() else None,
        config=Config.load(preset=given.preset, assignments=assignments),
        systems=choose_systems(systems) if systems else (),
        variants={name: [*given.assignments, *own] for name, own in variants.items()},
        seeds=sorted({key["seed"] for key in keys}),
        folds=given.folds,
        budget_seconds=None if given.budget_minutes is None else 60 * given.budget_minutes,
        cutoffs=(20,),
        systems_module="experiments.systems",
    )
    tasks = [replace(task, changes={**task.changes, "preset": given.preset} if task.label else {}) for task in tasks]
    with results_folder(out):
        results = [done.result for done in run_shown(tasks, out, jobs=1) if done.result is not None]
    failed = [f"{name_of(result)}: {result['failed']}" for result in results if "failed" in result]
    if failed:
        raise InputError("\n".join(["Not measured; the same command tries again:", *failed]))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    lines = []
    for key in keys:
        of_seed = [result for result in results if result["seed"] == key["seed"]]
        model = next(result for result in of_seed if name_of(result) == key.get("name", features.WITHOUT))
        settings = merge(model["settings"], model["changes"]["settings"])
        lines.append({**kind(key, of_seed), "commit": commit.strip(), "settings": settings})
    return lines


if __name__ == "__main__":
    sys.exit(main())
