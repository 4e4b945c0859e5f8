"""beamtree reproduce: the paper's experiments by name, on your log."""

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamtree.cli.console import messages, results, show
from beamtree.cli.log_options import LogOptions
from beamtree.cli.option_groups import takes_option_groups
from beamtree.cli.options import ItemsOption, JobsOption, SeedsOption
from beamtree.cli.task_table import print_list, results_folder, run_shown
from beamtree.compare.systems import SYSTEMS
from beamtree.compare.task import Task, read_result
from beamtree.config import MAX_EPOCHS, Config
from beamtree.errors import InputError, InterruptedTraining

if TYPE_CHECKING:
    from beamtree.compare.reproduce.experiment import Experiment, Heading, Variant

PROTOCOL = ("data.protocol=paper", "data.min_interactions=15")
"""As published; --set may change them."""
MINUTES = 10.0
CUTOFFS = (20, 40)
DataOption = Annotated[
    str | None,
    typer.Option("--data", help="Interaction log: a file, folder or glob of CSV, TSV, Parquet or NDJSON."),
]
InstancesOption = Annotated[
    int | None,
    typer.Option(min=1, help="Train trees on this number of instances in total, instead of by time."),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(min=0.05, help="Time limit of each fit. [10; trees with --instances: no limit]"),
]

Catalogue = Callable[[], "Mapping[str, Experiment]"]


def reproduce_command(catalogue: Catalogue, *, program: str) -> Callable[..., None]:
    """The command for a catalogue of experiments, which is loaded when it is needed."""

    @takes_option_groups
    def reproduce(
        name: Annotated[str | None, typer.Argument(help="The experiment; without it, list all.")] = None,
        *,
        data: DataOption = None,
        items: ItemsOption = None,
        paper: Annotated[bool, typer.Option("--paper", help="Show the published figures too.")] = False,
        systems: Annotated[str | None, typer.Option(help="Only these of its systems, separated by commas.")] = None,
        instances: InstancesOption = None,
        budget_minutes: BudgetOption = None,
        seeds: SeedsOption = 1,
        jobs: JobsOption = 1,
        assignments: Annotated[
            list[str] | None,
            typer.Option("--set", help="One setting for all systems: data.protocol=clean. Repeat as needed."),
        ] = None,
        out: Annotated[Path, typer.Option("--out", "-o", help="Folder for results and reports.")] = Path(
            "reproduction"
        ),
        list_experiments: Annotated[bool, typer.Option("--list", help="List all experiments and exit.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="The list, or the results, as JSON.")] = False,
        reading: LogOptions,
    ) -> None:
        """Repeat an experiment of the paper on a log, and write its table or figure.

        Fits and learning curves are saved as they come: after Ctrl-C or a crash the same command continues. Experiments
        on the same fits share them in the same --out.
        """
        from beamtree.compare.report import About

        if name is None or list_experiments:
            _list(as_json=as_json)
            return
        experiment = _chosen(catalogue(), name)
        if data is None:
            raise InputError(f"Give the log to repeat it on: {program} {name} --data LOG.")
        variants = _variants(experiment, systems)
        config = Config.load(assignments=[*PROTOCOL, *(assignments or [])], overrides={"log": reading.settings()})
        limits = _Limits(instances or experiment.instances, budget_minutes)
        tasks = [
            _task(variant, seed, log=data, items=items, config=config, limits=limits, module=experiment.systems_module)
            for seed in range(seeds)
            for variant in variants
        ]
        minutes = MINUTES if budget_minutes is None else budget_minutes
        about = About(Path(data).stem or data, minutes, seeds, command=f"{program} {shlex.join(_own_arguments())}")
        write = partial(_write, experiment, variants, tasks, about, with_paper=paper, out=out)
        written = _run(tasks, write, jobs=jobs, out=out)
        if as_json:
            results.print_json((out / f"{name}.json").read_text(encoding="utf-8"))
            return
        show(written)
        messages.print(f"Report: {out / f'{name}.html'}", soft_wrap=True)
        if not any("metrics" in (read_result(out, task) or {}) for task in tasks):
            raise InputError("No fit could be measured; the reasons are above.")

    return reproduce


class _Limits:
    """The budget of a fit: instances for trees, if given, minutes for everything else."""

    def __init__(self, instances: int | None, minutes: float | None) -> None:
        self._instances = instances
        self._minutes = minutes

    def settings(self, variant: "Variant", config: Config) -> dict[str, Any]:
        settings = config.model_dump(mode="json")
        if self._counts_instances(variant):
            settings["training"] |= {"max_instances": self._instances, "epochs": MAX_EPOCHS}
        return settings

    def seconds(self, variant: "Variant") -> float | None:
        if self._minutes is not None:
            return 60 * self._minutes
        return None if self._counts_instances(variant) else 60 * MINUTES

    def _counts_instances(self, variant: "Variant") -> bool:
        listed = SYSTEMS.get(variant.system)
        return self._instances is not None and (listed is None or listed.family == "tree")


def _run(tasks: Sequence[Task], write: Callable[[], str], *, jobs: int, out: Path) -> str:
    """All fits, and what was written of them at the end, or when they were interrupted."""
    with results_folder(out):
        try:
            run_shown(tasks, out, jobs=jobs)
        except InterruptedTraining:
            write()
            raise
        return write()


def _task(
    variant: "Variant", seed: int, *, log: str, items: str | None, config: Config, limits: _Limits, module: str
) -> Task:
    return Task(
        variant.system,
        seed,
        log=log,
        items=items,
        settings=limits.settings(variant, config),
        budget_seconds=limits.seconds(variant),
        cutoffs=CUTOFFS,
        label=variant.label if variant.changes else None,
        changes=dict(variant.changes),
        systems_module=module,
    )


def _write(
    experiment: "Experiment",
    variants: "Sequence[Variant]",
    tasks: Sequence[Task],
    about: Any,
    *,
    with_paper: bool,
    out: Path,
) -> str:
    """The report of the results so far."""
    from beamtree.compare.curve import read_curves
    from beamtree.compare.reproduce.experiment import Evidence
    from beamtree.compare.reproduce.write import write_experiment
    from beamtree.compare.summary import summarise

    found = [result for task in tasks if (result := read_result(out, task)) is not None]
    labels = {variant.label for variant in variants}
    curves = [curve for curve in read_curves(out) if curve.label in labels]
    evidence = Evidence(variants, summarise(found), curves, with_paper)
    return write_experiment(experiment, evidence, found, about, directory=out)


def _chosen(catalogue: "Mapping[str, Experiment]", name: str) -> "Experiment":
    from beamtree.compare.reproduce.catalogue import EXPERIMENTS, OUTSIDE

    if name in catalogue:
        return catalogue[name]
    headings: Mapping[str, Heading] = {**{each: one.heading for each, one in EXPERIMENTS.items()}, **OUTSIDE}
    if name in headings:
        other = headings[name].program
        raise InputError(f"{name} runs with {other} {name} --data LOG, from a clone of the repository.")
    raise InputError(f"Expected the name of an experiment, got {name!r}. Choose from {', '.join(headings)}.")


def _variants(experiment: "Experiment", systems: str | None) -> "list[Variant]":
    names = [] if systems is None else [name.strip() for name in systems.split(",")]
    unknown = [name for name in names if name not in experiment.systems]
    if unknown:
        raise InputError(
            f"{experiment.heading.name} has no {', '.join(map(repr, unknown))}. Its systems: "
            f"{', '.join(experiment.systems)}."
        )
    return experiment.of_systems(names)


def _own_arguments() -> list[str]:
    """What was given to this command; as `beamtree reproduce` it comes after that name."""
    words = sys.argv[1:]
    return words[words.index("reproduce") + 1 :] if "reproduce" in words else words


def _list(*, as_json: bool) -> None:
    from beamtree.compare.reproduce.catalogue import EXPERIMENTS, OUTSIDE

    headings = [*(experiment.heading for experiment in EXPERIMENTS.values()), *OUTSIDE.values()]
    if as_json:
        results.print_json(json.dumps([heading.facts() for heading in headings]))
        return
    rows = [list(heading.facts().values()) for heading in headings]
    print_list("Experiments of the paper", ("name", "what", "paper", "command"), rows)


def _product() -> "Mapping[str, Experiment]":
    from beamtree.compare.reproduce.catalogue import EXPERIMENTS

    return EXPERIMENTS


reproduce = reproduce_command(_product, program="beamtree reproduce")
