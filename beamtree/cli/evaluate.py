"""beamtree evaluate: metrics of a saved model on held-out users, beside baselines."""

import json
from contextlib import nullcontext
from typing import Annotated, Literal

import typer

from beamtree.cli.console import (
    comparison_json,
    fit_progress,
    hint_at_user_table,
    messages,
    results,
    show_comparison,
)
from beamtree.cli.log_options import LogOptions
from beamtree.cli.option_groups import takes_option_groups
from beamtree.cli.options import (
    BeamOption,
    CutoffsOption,
    LogOption,
    ModelArgument,
    UsersOption,
    estimators_beside,
    parse_cutoffs,
)
from beamtree.data.prepare import explain_seen_items
from beamtree.data.profile import LogProfile
from beamtree.evaluation.protocol import describe_protocol
from beamtree.recommender import DeepTreeRetriever


@takes_option_groups
def evaluate(
    model: ModelArgument,
    *,
    log: LogOption,
    users: UsersOption = None,
    held_out: Annotated[Literal["test", "validation"], typer.Option(help="Which held-out users.")] = "test",
    cutoffs: CutoffsOption = None,
    beam: BeamOption = None,
    exact: Annotated[bool, typer.Option(help="Also run an exact scan with the same score.")] = True,
    baselines: Annotated[
        str,
        typer.Option(
            help="simple: those that take seconds on this log; all: also trained ones, minutes; none; or names, "
            "such as item-to-item,ease or simple,ials."
        ),
    ] = "simple",
    as_json: Annotated[bool, typer.Option("--json", help="All metrics as JSON.")] = False,
    reading: LogOptions,
) -> None:
    """Measure a model on held-out users of the log that it was fitted on, beside an exact scan and baselines.

    The last line says whether the model is ahead of the best baseline, level with it, or behind.
    """
    retriever = DeepTreeRetriever.load(model)
    tops = parse_cutoffs(cutoffs)
    hint_at_user_table(retriever.recommender.artefact.request_features, users)
    interactions = reading.read(log, retriever.config.log)
    kept = estimators_beside(model)
    trains = baselines not in ("none", "simple")
    with fit_progress() if trains else nullcontext() as listen:
        comparison = retriever.evaluate(
            interactions,
            users=users,
            held_out=held_out,
            cutoffs=tops,
            beam=beam,
            exact=exact,
            baselines=baselines,
            estimator_cache=kept if kept.is_dir() else None,
            listen=listen,
        )
    measured = next(iter(comparison.values()))
    protocol = describe_protocol(retriever.config, measured)
    _hint_at_repeats(retriever)
    if as_json:
        split = retriever.recommender.artefact.training["split"]
        about = {"held_out": held_out, "split": split, "protocol": protocol}
        results.print_json(json.dumps(about | comparison_json(comparison)))
    else:
        show_comparison(comparison, title=f"{measured.num_users:,} {held_out} users ({protocol})")


def _hint_at_repeats(model: DeepTreeRetriever) -> None:
    """Point out frequent repeats: whether seen items are recommended then decides much of the accuracy."""
    facts = model.recommender.artefact.training.get("log")
    profile = None if facts is None else LogProfile.recorded(facts)
    if profile is not None and profile.people_repeat:
        messages.print(f"Note: {explain_seen_items(profile, config=model.config)}.", soft_wrap=True)
