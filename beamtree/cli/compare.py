"""beamtree compare: accuracy and cost of systems on one log."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from beamtree.cli.console import messages, results, show
from beamtree.cli.log_options import LogOptions
from beamtree.cli.option_groups import takes_option_groups
from beamtree.cli.options import CutoffsOption, ItemsOption, JobsOption, SeedsOption, parse_cutoffs
from beamtree.cli.task_table import print_list, results_folder, run_shown
from beamtree.compare.plan import plan_tasks
from beamtree.compare.systems import SYSTEMS, System, choose_systems
from beamtree.config import Config
from beamtree.errors import InputError, SettingsError

REPORT = "report.html"


@takes_option_groups
def compare(
    log: Annotated[
        str | None,
        typer.Argument(help="Interaction log: a file, folder or glob of CSV, TSV, Parquet or NDJSON.", metavar="LOG"),
    ] = None,
    *,
    items: ItemsOption = None,
    systems: Annotated[
        str,
        typer.Option(help="all; quick: beamtree and those that take seconds; or names separated by commas."),
    ] = "all",
    budget_minutes: Annotated[float, typer.Option(min=0.05, help="Time limit of each fit.")] = 10.0,
    variants: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            help="A further system, the default with another setting: LABEL:section.key=value. Repeat as needed.",
        ),
    ] = None,
    seeds: SeedsOption = 1,
    folds: Annotated[
        int | None,
        typer.Option(min=2, help="Cross-validation: fit on this number of splits, with every user tested once."),
    ] = None,
    jobs: JobsOption = 1,
    cutoffs: CutoffsOption = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting for all systems: data.holdout=last. Repeat as needed."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for results and report.")] = Path("comparison"),
    list_systems: Annotated[bool, typer.Option("--list", help="List all systems and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The list, or the results, as JSON.")] = False,
    reading: LogOptions,
) -> None:
    """Fit and measure systems side by side on a log, and write tables and a report.

    Each fit runs in a separate process. Finished fits are kept: after Ctrl-C or a crash the same command continues with
    the rest. A system whose library is missing is left out, with the way to install it.
    """
    if list_systems:
        _list(list(SYSTEMS.values()), as_json=as_json)
        return
    if log is None:
        raise InputError("Give the log to compare on: beamtree compare LOG. --list names the systems.")
    from beamtree.compare.report import About, write_report

    chosen, tops = choose_systems(systems), parse_cutoffs(cutoffs)
    config = Config.load(assignments=assignments or [], overrides={"log": reading.settings()})
    tasks = plan_tasks(
        log,
        items,
        config=config,
        systems=chosen,
        variants=_variants(variants or []),
        seeds=range(seeds),
        folds=folds,
        budget_seconds=60 * budget_minutes,
        cutoffs=tops,
    )
    about = About(Path(log).stem or log, budget_minutes, seeds, command=shlex.join(["beamtree", *sys.argv[1:]]))
    with results_folder(out):
        done = run_shown(tasks, out, jobs=jobs)
        found = [one.result for one in done if one.result is not None]
        summary, written = write_report(found, about, directory=out)
    if as_json:
        results.print_json((out / "results.json").read_text(encoding="utf-8"))
        return
    show(written)
    messages.print(f"Report: {out / REPORT}", soft_wrap=True)
    if not summary.rows:
        raise InputError("No system could be measured; the reasons are above.")


def _variants(texts: Sequence[str]) -> dict[str, list[str]]:
    """Settings by label; the same label again adds one. SettingsError where there is no label."""
    found: dict[str, list[str]] = {}
    for text in texts:
        label, separator, assignment = text.partition(":")
        if not (separator and label.strip()):
            raise SettingsError(f"--variant takes LABEL:section.key=value, got {text!r}.")
        found.setdefault(label.strip(), []).append(assignment)
    return found


def _list(systems: Sequence[System], *, as_json: bool) -> None:
    if as_json:
        results.print_json(json.dumps([system.facts() for system in systems]))
        return
    rows = []
    for system in systems:
        facts = system.facts()
        needs = "" if facts["extra"] is None else f"beamtree[{facts['extra']}]"
        missing = "" if facts["is_installed"] else ", not installed"
        rows.append((system.name, system.family, facts["description"], escape(needs + missing)))
    print_list("Systems", ("name", "family", "what it is", "needs"), rows)
