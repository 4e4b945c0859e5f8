"""beamtree inspect: facts of a saved model, and, with its log, a diagnostic report."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.progress import TaskID, TextColumn

from beamtree.artefact import Artefact, load_artefact
from beamtree.cli.console import fact_table, fit_progress, hint_at_user_table, messages, results, say
from beamtree.cli.log_options import LogOptions
from beamtree.cli.option_groups import OptionGroup, takes_option_groups
from beamtree.cli.options import ModelArgument, UsersOption, estimators_beside
from beamtree.cli.output import check_place_of, make_folder_of
from beamtree.data.prepare import explain_decisions
from beamtree.data.profile import LogProfile
from beamtree.errors import InputError
from beamtree.progress import timed_bar
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.beam import first_searched_level
from beamtree.retrieval.scorers import arrays_by_part
from beamtree.storage import replace_text

DEFAULT_REPORT = Path("report.html")
DEFAULT_USERS = 200
PAGE_SUFFIXES = (".html", ".htm")


@dataclass(frozen=True, kw_only=True)
class ReportOptions(OptionGroup):
    """Of a report, which needs the log."""

    users: UsersOption = None
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Path of the report, default report.html; the JSON goes beside it."),
    ] = None
    max_users: Annotated[int | None, typer.Option(min=1, help="Number of held-out users; default 200.")] = None
    held_out: Annotated[
        Literal["validation", "test"] | None, typer.Option(help="Which held-out users; default test.")
    ] = None
    estimator: Annotated[
        Literal["auto", "popularity", "encoder"] | None,
        typer.Option(
            help="Source of the probabilities for labels; encoder trains one if needed, auto uses a stored one."
        ),
    ] = None
    estimator_cache: Annotated[
        Path | None, typer.Option(help="Folder of the fit's estimator; default MODEL.estimator.")
    ] = None
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the sample of users; default 0.")] = None


@takes_option_groups
def inspect(
    model: ModelArgument,
    *,
    log: Annotated[
        str | None, typer.Option("--log", help="The log the model was fitted on: measure the model and write a report.")
    ] = None,
    wanted: ReportOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False,
    reading: LogOptions,
) -> None:
    """Show a model's tree, sizes, settings, training and metrics; with --log, diagnose it on held-out users.

    The report is one HTML file with plots: accuracy beside baselines, example lists, coverage and popularity, latency
    against beam width, beam search against an exact scan, what each part of the score adds; at the end the theory: loss
    by level, max-heap violations and, for attention, sampling, rounds, rectified labels.
    """
    if log is not None:
        _diagnose(model, log, wanted=wanted, as_json=as_json, reading=reading)
        return
    given = [*wanted.given(), *reading.given()]
    if given:
        raise InputError(f"A report needs the log: add --log LOG, or leave out {' and '.join(given)}.")
    _show(load_artefact(model), as_json=as_json)


def _show(artefact: Artefact, *, as_json: bool) -> None:
    facts = _facts(artefact)
    settings = artefact.config.model_dump(mode="json")
    if as_json:
        everything = {"facts": facts, "settings": settings, "metrics": artefact.metrics, "training": artefact.training}
        results.print_json(json.dumps(everything, default=dict))
        return
    measured = {
        f"{users} {name}": f"{metrics[name]:.4f}"
        for users, metrics in artefact.metrics.items()
        for name in ("recall@20", "f@20", "ndcg@20", "coverage@20", "distinct_lists@20")
        if name in metrics
    }
    results.print(fact_table(f"Model {artefact.version}", (facts | measured).items()))
    named = ((f"{section}.{key}", value) for section, values in settings.items() for key, value in values.items())
    results.print(fact_table("Settings", named))


def _diagnose(model: Path, log: str, *, wanted: ReportOptions, as_json: bool, reading: LogOptions) -> None:
    """Measure, write the page and the JSON beside it, print the headlines."""
    try:
        from beamtree.diagnostics.diagnose import diagnose, examine
        from beamtree.diagnostics.estimators import choose_estimator
        from beamtree.diagnostics.headlines import headlines
        from beamtree.diagnostics.page import render_page
    except ModuleNotFoundError as missing:
        raise InputError(f"A report needs the package {missing.name}: pip install 'beamtree[train]'.") from missing

    out = wanted.out or DEFAULT_REPORT
    _check_out(out)
    retriever = DeepTreeRetriever.load(model)
    hint_at_user_table(retriever.recommender.artefact.request_features, wanted.users)
    examined = examine(
        retriever,
        reading.read(log, retriever.config.log),
        users=wanted.max_users or DEFAULT_USERS,
        group=wanted.held_out,
        seed=wanted.seed or 0,
        user_table=wanted.users,
    )
    chosen = None
    if examined.has_attention:
        with fit_progress() as listen:
            chosen = choose_estimator(
                wanted.estimator or "auto",
                examined.artefact,
                examined.dataset,
                examined.split,
                directory=wanted.estimator_cache or estimators_beside(model),
                listen=listen,
            )
    elif wanted.estimator is not None:
        raise InputError("--estimator is about rectified labels of attention, which this model has not: leave it out.")
    with _measuring() as progress:
        diagnostics = diagnose(examined, chosen, progress=progress)
    page, data = render_page(diagnostics), diagnostics.to_json()
    beside = out.with_suffix(".json")
    make_folder_of(out)
    try:
        replace_text(beside, data)
        replace_text(out, page)
    except OSError as error:
        raise InputError(f"Could not write {out}: {error.strerror or error}. Give another --out.") from error
    if as_json:
        results.print_json(data)
    else:
        subject = diagnostics.subject
        title = f"Model {subject.model}, {subject.users:,} {subject.group} users"
        results.print(fact_table(title, ((line.name, line.value, line.remark) for line in headlines(diagnostics))))
    say(f"Wrote {out} and {beside}.")


def _check_out(out: Path) -> None:
    """InputError, before any work, where the report cannot be written."""
    if out.suffix.lower() not in PAGE_SUFFIXES:
        raise InputError(f"--out takes a file ending in .html, got {out.name!r}; the JSON is written beside it.")
    check_place_of(out)


@contextmanager
def _measuring() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for each measurement."""
    bar = timed_bar("{task.description}", TextColumn("{task.completed:,.0f} of {task.total:,.0f}"), console=messages)
    tasks: dict[str, TaskID] = {}

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            tasks[stage] = bar.add_task(stage, total=total)
        bar.update(tasks[stage], completed=done)

    with bar:
        yield progress


def _log_facts(artefact: Artefact) -> dict[str, str]:
    """The log profile and the defaults derived from it, if the model stores them."""
    profile = LogProfile.recorded(artefact.training.get("log", {}))
    if profile is None:
        return {}
    size = f"{profile.interactions:,} interactions of {profile.users:,} users"
    return {"log": "\n".join([size, *profile.lines(), *explain_decisions(profile, config=artefact.config)])}


def _facts(artefact: Artefact) -> dict[str, str]:
    tree, training = artefact.tree, artefact.training
    table_bytes = sum(array.nbytes for array in artefact.weights.values())
    networks = [*artefact.part("attention").items(), *artefact.part("tower").items()]
    network = sum(int(np.prod(array.shape)) for name, array in networks if not name.endswith("_table"))
    index_bytes = table_bytes + tree.item_at_leaf.nbytes + tree.leaf_of_item.nbytes
    start = first_searched_level(tree, beam_width=artefact.config.retrieval.beam_width)
    return {
        "items": f"{tree.num_present:,}" + (f" ({tree.removed.size:,} removed)" if tree.removed.size else ""),
        "tree": f"branching {tree.branching}, height {tree.height}, {tree.num_nodes:,} nodes",
        "searched levels": f"{start} to {tree.height} with a beam of {artefact.config.retrieval.beam_width}",
        "score": " + ".join(sorted(arrays_by_part(artefact.weights))),
        "network weights": f"{network:,}",
        "index size": f"{index_bytes / 2**20:.2f} MB, {index_bytes / tree.num_items:.0f} bytes per item",
        **_log_facts(artefact),
        **({"features": "\n".join(artefact.request_features.lines())} if artefact.request_features else {}),
        "split": str(training.get("split", "")),
        "training": _training_fact(training),
    }


def _training_fact(training: Mapping[str, Any]) -> str:
    """The training time, and what was trained: rounds of attention, the encoder of a tower, or counts alone."""
    said = [f"{training.get('instances', 0):,} instances"]
    if training.get("rounds"):
        said.append(f"{training.get('steps', 0):,} steps in {len(training['rounds'])} rounds")
    if training.get("estimator_seconds"):
        said.append(f"encoder {training['estimator_seconds']} s")
    return ", ".join([*said, f"{training.get('seconds', 0)} s in all"])
