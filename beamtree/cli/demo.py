"""beamtree demo: from data to recommendations on MovieLens 100k, or, with --large, on a large synthetic bookshop."""

from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer
from rich.markup import escape
from rich.table import Table

from beamtree.cli.console import fit_progress, messages, results, show_comparison
from beamtree.cli.demo_large import large_demo
from beamtree.cli.serve import serve as serve_model
from beamtree.config import Config
from beamtree.data.public import fetch
from beamtree.evaluation.protocol import describe_protocol
from beamtree.recommender import DeepTreeRetriever

NUM_SHOWN_USERS = 3
NUM_SHOWN_ITEMS = 5


def demo(
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the model; default models/demo or models/demo-large.")
    ] = None,
    large: Annotated[
        bool, typer.Option("--large", help="A synthetic bookshop of 150,000 books instead; no download.")
    ] = False,
    serve: Annotated[bool | None, typer.Option(help="Serve the page at the end; default: with --large.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the server; 0 lets the system choose.")] = 8000,
) -> None:
    """Fetch MovieLens 100k, fit the small preset, evaluate it, and recommend to three held-out users.

    With --large: make a catalogue of more than 100,000 items, fit a small network for about a minute, compare narrow
    with wide beams, and serve the page to play with.
    """
    folder = out or Path("models/demo-large" if large else "models/demo")
    if large:
        large_demo(folder)
    else:
        _movies(folder)
    if large if serve is None else serve:
        results.print(f"\nServing {folder}; stop with Ctrl-C.", markup=False, soft_wrap=True)
        serve_model(folder, port=port, access_log=False)


def _movies(out: Path) -> None:
    files = fetch("ml-100k", say=messages.print)
    model = DeepTreeRetriever(Config.preset("small"))
    messages.print(f"Learning from {files.interactions} with the small preset ...", markup=False)
    with fit_progress() as listen:
        model.fit(str(files.interactions), items=str(files.items), listen=listen)
    model.save(out)
    prepared = model.dataset.report
    assert prepared is not None
    results.print("\n[bold]The data[/]: MovieLens 100k. " + "; ".join(prepared.lines()) + ".")
    training = model.recommender.artefact.training
    results.print(f"[bold]The split[/]: {training['split']}.")
    results.print(f"[bold]Learning[/]: {training['seconds']:.0f} s.\n")
    show_comparison(model.evaluate(), title=f"Held-out users, {describe_protocol(model.config)}")
    model.write_card(out)  # with the baselines of the table
    _show_people(model)
    results.print("\n[bold]Next[/]")
    for command in (
        f"beamtree recommend {out} --history 50,181,172 -k 10",
        f"beamtree recommend {out} --log {files.interactions} --out recommendations.parquet",
        f"beamtree inspect {out}",
        f"beamtree fit {files.interactions} --items {files.items} --out models/mine --preset default",
    ):
        results.print(f"  .venv/bin/{command}", markup=False, soft_wrap=True)


def _show_people(model: DeepTreeRetriever) -> None:
    """Show the latest items and the recommendations of a few held-out users."""
    dataset, held_out = model.dataset, model.held_out().take(np.arange(NUM_SHOWN_USERS))
    titles = dataset.item_table["title"]
    histories = held_out.histories(dataset.sequences, NUM_SHOWN_ITEMS)
    seen, offsets = held_out.seen(dataset.sequences)
    labels, label_offsets = held_out.labels(dataset.sequences, True)
    raw_histories = [
        dataset.items.decode(seen[offsets[row] : offsets[row + 1]]).to_list() for row in range(NUM_SHOWN_USERS)
    ]
    table = model.recommend_histories(raw_histories, k=NUM_SHOWN_ITEMS)
    for row in range(NUM_SHOWN_USERS):
        user = dataset.users.decode(held_out.user[row : row + 1]).item(0)
        recommended = dataset.items.encode(table.filter(pl.col("request") == row)["item_id"])
        later = set(labels[label_offsets[row] : label_offsets[row + 1]].tolist())
        shown = Table(
            title=f"\nUser {user}, whose later films the model has never seen", title_justify="left", title_style="bold"
        )
        shown.add_column("watched last", width=38, no_wrap=True)
        shown.add_column("recommended (✓ = watched later)", width=46, no_wrap=True)
        for watched, item in zip(histories[row][::-1], recommended, strict=True):
            mark = "✓ " if int(item) in later else "  "
            shown.add_row(escape(str(titles[int(watched)])), escape(f"{mark}{titles[int(item)]}"))
        results.print(shown)
