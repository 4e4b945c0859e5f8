"""beamtree compare: every system on one log, what each gives and what it costs."""

import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from beamtree.cli.console import messages, results
from beamtree.cli.log_options import LogOptions, takes_log_options
from beamtree.cli.options import CutoffsOption, ItemsOption, parse_cutoffs
from beamtree.compare.runner import Progress, run_tasks
from beamtree.compare.systems import SYSTEMS, System, choose_systems
from beamtree.compare.task import Task
from beamtree.config import Config
from beamtree.errors import InputError
from beamtree.training.exclusive import claimed_folder

REPORT = "report.html"


@takes_log_options
def compare(
    log: Annotated[
        str | None,
        typer.Argument(help="Interaction log: a file, folder or glob of CSV, TSV, Parquet or NDJSON.", metavar="LOG"),
    ] = None,
    *,
    items: ItemsOption = None,
    systems: Annotated[
        str,
        typer.Option(help="all; quick: those that take seconds or are ours; or names with commas between them."),
    ] = "all",
    budget_minutes: Annotated[float, typer.Option(min=0.05, help="For each fit, at most.")] = 10.0,
    seeds: Annotated[int, typer.Option(min=1, help="Fits of each system; who is held out stays the same.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Fits at a time. Times are only comparable with 1.")] = 1,
    cutoffs: CutoffsOption = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting for all systems: data.holdout=last. Repeat as needed."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for results and report.")] = Path("comparison"),
    list_systems: Annotated[bool, typer.Option("--list", help="Name all systems and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The list, or the results, as JSON.")] = False,
    reading: LogOptions,
) -> None:
    """Fit and measure systems beside each other on a log, and write tables and a report.

    Each fit runs in a process of its own. Whatever is finished is kept: after Ctrl-C or a crash the same command goes
    on with the rest. A system whose library is missing says how to get it, and the others go on.
    """
    if list_systems:
        _list(list(SYSTEMS.values()), as_json=as_json)
        return
    if log is None:
        raise InputError("Give the log to compare on: beamtree compare LOG. --list names the systems.")
    from beamtree.compare.report import About
    from beamtree.compare.write import write_report

    chosen, tops = choose_systems(systems), parse_cutoffs(cutoffs)
    config = Config.load(assignments=assignments or [], overrides={"log": reading.settings()})
    tasks = [
        Task(
            name,
            seed,
            log=log,
            items=items,
            settings=config.model_dump(mode="json"),
            budget_seconds=60 * budget_minutes,
            cutoffs=tops,
        )
        for seed in range(seeds)
        for name in chosen
    ]
    about = About(Path(log).stem or log, budget_minutes, seeds, command=shlex.join(["beamtree", *sys.argv[1:]]))
    try:
        out.mkdir(parents=True, exist_ok=True)
        with claimed_folder(out, otherwise="give another --out"):
            with Live(console=messages, refresh_per_second=2, transient=True) as live:
                done = run_tasks(tasks, out, jobs=jobs, show=lambda now: live.update(_progress_table(now, jobs=jobs)))
            found = [one.result for one in done if one.result is not None]
            summary, written = write_report(found, about, directory=out)
    except OSError as error:
        raise InputError(
            f"Could not write to {out}: {error.strerror or error}. What is measured is kept; give a folder that can be "
            "written to, or make room, and run the same command again."
        ) from error
    if as_json:
        results.print_json((out / "results.json").read_text(encoding="utf-8"))
        return
    results.print(written, markup=False, soft_wrap=True)
    messages.print(f"Report: {out / REPORT}", soft_wrap=True)
    if not summary.rows:
        raise InputError("No system could be measured; the reasons are above.")


def _list(systems: Sequence[System], *, as_json: bool) -> None:
    if as_json:
        results.print_json(json.dumps([system.facts() for system in systems]))
        return
    table = Table(title="Systems", title_justify="left", title_style="bold")
    for column in ("name", "family", "what it is", "needs"):
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    for system in systems:
        facts = system.facts()
        needs = "" if facts["extra"] is None else f"beamtree[{facts['extra']}]"
        missing = "" if facts["is_installed"] else ", not installed"
        table.add_row(system.name, system.family, facts["description"], escape(needs + missing))
    results.print(table)


def _progress_table(progress: Sequence[Progress], *, jobs: int) -> Table:
    table = Table(title=_title(progress, jobs=jobs), title_justify="left", title_style="bold")
    for column in ("system", "seed", "stage", "seconds", "F@20", "NDCG@20"):
        table.add_column(column, justify="left" if column in ("system", "stage") else "right")
    for one in progress:
        metrics = {} if one.result is None else one.result.get("metrics", {})
        stage = f"{one.stage} {one.done:.0%}" if one.stage == "fitting" else one.stage.replace("_", " ")
        shown = [f"{metrics[name]:.4f}" if name in metrics else "" for name in ("f@20", "ndcg@20")]
        seconds = "" if one.started is None and one.result is None else f"{one.seconds:.0f}"
        table.add_row(one.task.system, str(one.task.seed), stage, seconds, *shown)
    return table


def _title(progress: Sequence[Progress], *, jobs: int) -> str:
    """How many are done, and how long the others take at most."""
    done = [one for one in progress if one.result is not None]
    rest = [one for one in progress if one.result is None]
    left = sum(max(one.task.budget_seconds - one.seconds, 0.0) for one in rest) / jobs
    ends = time.strftime("%H:%M", time.localtime(time.time() + left))
    return f"{len(done)} of {len(progress)} done" + (f", at most until about {ends}" if rest else "")
