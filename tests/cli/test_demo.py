"""The demo tells what the data is, how the model does, and what three people would get, in this order."""

from pathlib import Path

import polars as pl
import pytest

from beamtree.config import PRESETS
from beamtree.data.public import PublicFiles
from tests.cli.beamtree_command import Command


@pytest.mark.usefixtures("folder")
def test_demo(beamtree: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    items = pl.read_csv("items.csv")
    items.write_parquet("items.parquet")
    pl.read_csv("ratings.csv").write_parquet("ratings.parquet")
    files = PublicFiles(Path("ratings.parquet"), Path("items.parquet"), source="here")
    monkeypatch.setattr("beamtree.cli.demo.fetch", lambda _name, **_: files)
    monkeypatch.setitem(PRESETS["small"]["training"], "epochs", 1)

    shown = beamtree("demo")
    assert shown.code == 0, shown.err
    parts = [
        "The data",
        "40 of 40 users",
        "The split",
        "beam search",
        "exact scan",
        "popularity",
        "item-to-item",
        "best simple baseline",
        "User u",
        "Next",
    ]
    places = [shown.out.index(part) for part in parts]
    assert places == sorted(places)
    assert shown.out.count("watched last") == 3
    assert shown.out.count("Title") == 3 * 2 * 5
    assert all(name in shown.out for name in ("precision", "recall", "NDCG"))
    assert "validation recall@20" in shown.err

    next_commands = [line.split() for line in shown.out[places[-1] :].splitlines() if "/beamtree " in line]
    assert len(next_commands) == 4
    again = beamtree(*next_commands[2][1:])
    assert again.code == 0, again.err


@pytest.mark.usefixtures("folder")
def test_the_large_demo(beamtree: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a shop that is small enough for a test; the model can be served, and its log inspected."""
    monkeypatch.setattr("beamtree.cli.demo.NUM_BOOKS", 600)
    monkeypatch.setattr("beamtree.cli.demo.NUM_READERS", 800)
    monkeypatch.setattr("beamtree.cli.demo.NUM_INSTANCES", 300)
    shown = beamtree("demo", "--large", "--no-serve", "--out", "shop")
    assert shown.code == 0, shown.err
    parts = ["The catalogue", "books in a tree of", "A search by beam width", "nodes scored", "every item", "Next"]
    places = [shown.out.index(part) for part in parts]
    assert places == sorted(places)
    nodes = [int(line.split("│")[2].replace(",", "")) for line in shown.out.splitlines() if line.startswith("│")]
    assert nodes[0] < nodes[1] < nodes[2], "a wider beam scores more nodes"
    assert Path("shop.data/interactions.parquet").is_file()
    looked = beamtree("recommend", "shop", "--history", "17,18,19", "-k", "3", "--explain")
    assert looked.code == 0, looked.err


def test_the_catalogue_of_the_large_demo_has_more_than_a_hundred_thousand_books() -> None:
    from beamtree.cli import demo
    from beamtree.data.bookshop import make_bookshop

    shop = make_bookshop(demo.NUM_BOOKS, demo.NUM_READERS, seed=demo.SEED)
    assert shop.interactions["item_id"].n_unique() > 100_000


@pytest.mark.usefixtures("folder")
def test_the_large_demo_is_served_unless_told_not_to(beamtree: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[Path, int]] = []
    monkeypatch.setattr("beamtree.cli.demo.large_demo", lambda _out: None)
    monkeypatch.setattr("beamtree.serving.logs.log_to", lambda: None)
    monkeypatch.setattr(
        "beamtree.serving.run.serve", lambda settings, **_: served.append((settings.model, settings.port))
    )
    assert beamtree("demo", "--large", "--port", "8123").code == 0
    assert served == [(Path("models/demo-large"), 8123)]
    assert beamtree("demo", "--large", "--no-serve").code == 0
    assert len(served) == 1
