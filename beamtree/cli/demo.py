"""beamtree demo: from data to recommendations on MovieLens 100k, or, with --large, on a large synthetic bookshop."""

from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer
from rich.markup import escape
from rich.table import Table

from beamtree.cli.console import fit_progress, messages, results, show, show_comparison
from beamtree.cli.serve import serve as serve_model
from beamtree.config import Config
from beamtree.data.bookshop import make_bookshop
from beamtree.data.public import fetch
from beamtree.diagnostics.latency import measure_latency
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.protocol import describe_protocol, held_out_requests
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
        show(f"\nServing {folder}; stop with Ctrl-C.")
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
        show(f"  .venv/bin/{command}")


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


NUM_BOOKS = 150_000
NUM_READERS = 120_000
NUM_INSTANCES = 60_000
"""Training instances: about a minute on two cores."""
SEED = 0


def large_demo(out: Path) -> None:
    """Generate the shop, fit a small network and memory, save the model, and show search time by beam width.

    Log and item table are kept in OUT.data, so that other commands can be tried on them.
    """
    data = out.with_name(f"{out.name}.data")
    data.mkdir(parents=True, exist_ok=True)
    log, items = data / "interactions.parquet", data / "items.parquet"
    messages.print(f"Making a bookshop of {NUM_BOOKS:,} books and {NUM_READERS:,} readers ...")
    shop = make_bookshop(NUM_BOOKS, NUM_READERS, seed=SEED)
    shop.interactions.write_parquet(log)
    shop.items.write_parquet(items)
    model = DeepTreeRetriever(settings())
    messages.print("Learning: counted memory and a small network, about a minute ...")
    with fit_progress() as listen:
        model.fit(str(log), items=str(items), listen=listen)
    model.save(out)
    tree = model.recommender.artefact.tree
    size = f"{tree.num_items:,} books in a tree of {tree.height} levels and {tree.num_nodes:,} nodes"
    results.print(f"\n[bold]The catalogue[/]: {size}.")
    results.print(f"[bold]Learning[/]: {model.recommender.artefact.training['seconds']:.0f} s.\n")
    results.print(_beam_table(model))
    results.print("\n[bold]Next[/]")
    for command in (
        f"beamtree serve {out}",
        f"beamtree recommend {out} --history 17,18,19 -k 10 --explain",
        f"beamtree inspect {out} --log {log} --out {data / 'report.html'}",
    ):
        show(f"  {command}")


def settings() -> Config:
    """A network trained for about a minute, and few held-out readers: the size of the catalogue is the point here."""
    held_out = max(0.002, 20 / NUM_READERS)
    return Config.preset(
        "small",
        model={"parts": ["attention", "memory"]},
        training={"max_instances": NUM_INSTANCES, "schedule": {"validations": 1}},
        data={"held_out_shares": (held_out, held_out)},
    )


def _beam_table(model: DeepTreeRetriever) -> Table:
    """Nodes scored and search time by beam width, beside an exact scan."""
    dataset, engine = model.dataset, model.recommender.engine
    reachable = reachable_labels(model.held_out(), dataset.sequences, config=model.config)
    requests = held_out_requests(dataset, reachable.users, exclude_seen=reachable.excludes_seen)
    latency = measure_latency(engine, requests, own_width=model.config.retrieval.beam_width)
    table = Table(title="A search by beam width", title_justify="left", title_style="bold")
    for name in ("beam", "nodes scored", "milliseconds"):
        table.add_column(name, justify="right")
    for result in latency.results:
        table.add_row(f"{result.width:,}", f"{result.scored_nodes:,.0f}", f"{result.median:.2f}")
    table.add_section()
    table.add_row("every item", f"{engine.tree.num_leaves:,}", f"{latency.scan:.2f}")
    return table
