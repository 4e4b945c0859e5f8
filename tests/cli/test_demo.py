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
