"""beamtree demo --large: narrow and wide beams on a large catalogue."""

from pathlib import Path

from rich.table import Table

from beamtree.cli.console import fit_progress, messages, results
from beamtree.config import Config
from beamtree.data.bookshop import make_bookshop
from beamtree.diagnostics.latency import measure_latency
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.protocol import held_out_requests
from beamtree.recommender import DeepTreeRetriever

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
        results.print(f"  {command}", markup=False, soft_wrap=True)


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
