"""beamtree evaluate: metrics of a saved model on the users it was not trained on."""

import json
from typing import Annotated, Literal

import typer

from beamtree.cli.console import messages, metrics_table, results
from beamtree.cli.options import BeamOption, LogOption, ModelArgument
from beamtree.data.interactions import read_log
from beamtree.data.prepare import explain_seen_items
from beamtree.data.profile import LogProfile
from beamtree.evaluation.protocol import describe_protocol
from beamtree.recommender import DeepTreeRetriever


def evaluate(
    model: ModelArgument,
    *,
    log: LogOption,
    users: Annotated[Literal["test", "validation"], typer.Option(help="Which held-out users to ask.")] = "test",
    beam: BeamOption = None,
    exact: Annotated[bool, typer.Option(help="Also scan every item with the same model.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="All metrics as JSON.")] = False,
) -> None:
    """Measure a model on held-out users of the log that it was fitted on, beside an exact scan and simple rivals."""
    retriever = DeepTreeRetriever.load(model)
    interactions = read_log(log, retriever.config.log)
    contenders = retriever.evaluate(interactions, users=users, beam_width=beam, exact=exact)
    measured = next(iter(contenders.values()))
    protocol = describe_protocol(retriever.config, measured)
    _hint_at_repeats(retriever)
    if as_json:
        metrics = {name: dict(values) for name, values in contenders.items()}
        split = retriever.recommender.artefact.training["split"]
        results.print_json(json.dumps({"users": users, "split": split, "protocol": protocol, "metrics": metrics}))
    else:
        results.print(metrics_table(contenders, title=f"{measured.num_users:,} {users} users ({protocol})"))


def _hint_at_repeats(model: DeepTreeRetriever) -> None:
    """Say that people repeat, where they do: what may be recommended then decides much of what is hit."""
    facts = model.recommender.artefact.training.get("log")
    if facts is not None and (profile := LogProfile(**facts)).people_repeat:
        messages.print(f"Note: {explain_seen_items(profile, config=model.config)}.", soft_wrap=True)
