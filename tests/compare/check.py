"""Every system on MovieLens 100k with a minute each: `make compare-check`. None may fail; about an hour on two cores.

What is finished is kept in build/compare-check, so that a second start goes on.
"""

import sys
from pathlib import Path

from beamtree.compare.runner import Progress, run_tasks
from beamtree.compare.systems import SYSTEMS
from beamtree.compare.task import Task
from beamtree.config import Config
from beamtree.data.public import fetch

OUT = Path("build/compare-check")
SECONDS = 60.0


def verdict(one: Progress) -> str | None:
    """What is wrong with a system; None where nothing is."""
    result = one.result or {}
    if "failed" in result:
        return f"failed: {result['failed']}"
    if "left_out" in result:
        return None if SYSTEMS[one.task.system].missing else f"left out: {result['left_out']}"
    return None if result["metrics"]["f@20"] > 0.0 else "hits nothing"


def main() -> int:
    """Run all, print a line for each, and say whether all are well."""
    log = str(fetch("ml-100k").interactions)
    settings = Config().model_dump(mode="json")
    tasks = [
        Task(name, 0, log=log, items=None, settings=settings, budget_seconds=SECONDS, cutoffs=(20,)) for name in SYSTEMS
    ]
    done = run_tasks(tasks, OUT, jobs=1)
    wrong = 0
    for one in done:
        fault = verdict(one)
        wrong += fault is not None
        metrics = (one.result or {}).get("metrics", {})
        figures = f"F@20 {metrics['f@20']:.4f}  {one.seconds:.0f} s" if metrics else one.stage.replace("_", " ")
        sys.stdout.write(f"{one.task.system:24} {figures}{'' if fault is None else f'  {fault}'}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
