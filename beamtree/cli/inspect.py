"""beamtree inspect: what is in a saved model."""

import json
from typing import Annotated

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from beamtree.artefact import Artefact, load_artefact
from beamtree.cli.console import results
from beamtree.cli.options import ModelArgument
from beamtree.retrieval.beam import first_searched_level


def inspect(
    model: ModelArgument, *, as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False
) -> None:
    """Show a model's tree, sizes, settings, training and metrics."""
    artefact = load_artefact(model)
    facts = _facts(artefact)
    settings = artefact.config.model_dump(mode="json")
    if as_json:
        everything = {"facts": facts, "settings": settings, "metrics": artefact.metrics, "training": artefact.training}
        results.print_json(json.dumps(everything, default=dict))
        return
    overview = Table(show_header=False, title=f"Model {artefact.version}", title_justify="left", title_style="bold")
    for name, value in facts.items():
        overview.add_row(name, escape(value))
    for users, metrics in artefact.metrics.items():
        for name in ("recall@20", "f@20", "ndcg@20", "coverage@20", "distinct_lists@20"):
            overview.add_row(f"{users} {name}", f"{metrics[name]:.4f}")
    results.print(overview)
    table = Table(title="Settings", title_justify="left", title_style="bold", show_header=False)
    for section, values in settings.items():
        for key, value in values.items():
            table.add_row(f"{section}.{key}", escape(str(value)))
    results.print(table)


def _facts(artefact: Artefact) -> dict[str, str]:
    tree, training = artefact.tree, artefact.training
    table_bytes = artefact.weights["node_table"].nbytes
    network = sum(int(np.prod(array.shape)) for name, array in artefact.weights.items() if not name.endswith("_table"))
    index_bytes = table_bytes + tree.item_at_leaf.nbytes + tree.leaf_of_item.nbytes
    start = first_searched_level(tree, beam_width=artefact.config.retrieval.beam_width)
    return {
        "items": f"{tree.num_items:,}",
        "tree": f"branching {tree.branching}, height {tree.height}, {tree.num_nodes:,} nodes",
        "searched levels": f"{start} to {tree.height} with a beam of {artefact.config.retrieval.beam_width}",
        "network weights": f"{network:,}",
        "index size": f"{index_bytes / 2**20:.2f} MB, {index_bytes / tree.num_items:.0f} bytes per item",
        "split": str(training.get("split", "")),
        "training": f"{training.get('instances', 0):,} instances, {training.get('steps', 0):,} steps in "
        f"{len(training.get('rounds', []))} rounds, {training.get('seconds', 0)} s",
    }
