"""beamtree evaluate: metrics of a saved model on the users it was not trained on."""

import json
from typing import Annotated, Literal

import typer

from beamtree.cli.console import metrics_table, results
from beamtree.cli.options import BeamOption, LogOption, ModelArgument
from beamtree.data.interactions import read_log
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
    protocol = describe_protocol(retriever.config)
    if as_json:
        metrics = {name: dict(values) for name, values in contenders.items()}
        split = retriever.retriever.artefact.training["split"]
        results.print_json(json.dumps({"users": users, "split": split, "protocol": protocol, "metrics": metrics}))
    else:
        num_users = next(iter(contenders.values())).num_users
        results.print(metrics_table(contenders, title=f"{num_users:,} {users} users ({protocol})"))
