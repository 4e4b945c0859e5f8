"""How a log is read is said in the same way to every command that reads one: on a log with names and ids of its own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.data.interactions import InteractionLog
from tests.cli.beamtree_command import Command

COLUMNS = ("--column", "user_id=Kunde", "--column", "item_id=Art.-Nr.", "--column", "timestamp=Wann")
ITEM_COLUMNS = ("--item-column", "item_id=sku", "--item-column", "title=name", "--item-column", "category=group")


@pytest.fixture
def shop(folder: Path) -> Path:
    """shop.csv and its items.csv: odd columns, ids with blanks, accents and leading zeros; views and purchases."""
    generator = np.random.default_rng(3)
    rows = ["Kunde;Art.-Nr.;Wann;Was"]
    for user in range(40):
        for place, item in enumerate(generator.permutation(np.arange(user % 2, 24, 2))):
            what = "view" if place % 4 == 3 else "buy"
            rows.append(f"K {user:03}é;{item:03};2024-01-{place + 1:02}T10:00:00;{what}")
    (folder / "shop.csv").write_text("\n".join(rows) + "\n\n", encoding="utf-8")
    items = [f'{item:03},"Thing, no. {item}",g{item % 2},{item}.5,{str(item % 2 == 0).lower()}' for item in range(24)]
    (folder / "catalogue.csv").write_text("sku,name,group,price,stock\n" + "\n".join(items) + "\n", encoding="utf-8")
    return folder


def fit(beamtree: Command, *more: str) -> None:
    fitted = beamtree(
        *("fit", "shop.csv", "--items", "catalogue.csv", "--preset", "instant", "--out", "model"),
        *(*COLUMNS, *ITEM_COLUMNS, *more),
    )
    assert fitted.code == 0, fitted.err


@pytest.mark.usefixtures("shop")
def test_items_have_columns_of_their_own(beamtree: Command) -> None:
    refused = beamtree("fit", "shop.csv", "--items", "catalogue.csv", "--preset", "instant", *COLUMNS)
    assert "catalogue.csv: no column 'item_id'" in refused.message
    assert "--item-column item_id=sku" in refused.message
    assert "--column item_id" not in refused.message.replace("--item-column", "")
    without = beamtree("fit", "shop.csv", "--preset", "instant", *COLUMNS, *ITEM_COLUMNS)
    assert "give that too, with --items" in without.message
    fit(beamtree)
    shown = beamtree("recommend", "model", "--history", "000,002", "-k", "3", "--allow", "stock=true")
    assert shown.code == 0, shown.err
    assert shown.out.count("Thing, no.") == 3
    assert json.loads(beamtree("inspect", "model", "--json").out)["settings"]["log"]["columns"] == {
        "user_id": "Kunde",
        "item_id": "Art.-Nr.",
        "timestamp": "Wann",
        "items.item_id": "sku",
        "items.title": "name",
        "items.category": "group",
    }


@pytest.mark.usefixtures("shop")
def test_an_item_table_that_fits_no_item_is_spoken_of(beamtree: Command) -> None:
    text = Path("catalogue.csv").read_text(encoding="utf-8").splitlines()
    Path("catalogue.csv").write_text("\n".join([text[0], *(f"x{line}" for line in text[1:])]), encoding="utf-8")
    fitted = beamtree(
        *("fit", "shop.csv", "--items", "catalogue.csv", "--preset", "instant", "--out", "model"),
        *(*COLUMNS, *ITEM_COLUMNS),
    )
    assert "describes no item of the log: its ids are like 'x000', those of the log like '0" in fitted.message


@pytest.mark.usefixtures("shop")
def test_a_model_remembers_how_its_log_is_read_and_another_log_may_differ(beamtree: Command) -> None:
    fit(beamtree, "--event-type", "Was=buy")
    remembered = beamtree("recommend", "model", "--log", "shop.csv", "--out", "a/new/folder/all.csv", "-k", "2")
    assert remembered.code == 0, remembered.err
    assert "480 rows read from shop.csv" in remembered.message
    assert "120 rows left out by the filters: Was is buy" in remembered.message
    assert "Recommending for 40 users" in remembered.message
    assert len(pl.read_csv("a/new/folder/all.csv")) == 80

    log = pl.read_csv("shop.csv", separator=";", infer_schema=False).drop_nulls()
    renamed = log.rename({"Kunde": "user_id", "Art.-Nr.": "sku", "Wann": "day"}).drop("Was")
    renamed.write_csv("other.csv")
    refused = beamtree("recommend", "model", "--log", "other.csv", "--out", "other.parquet")
    assert refused.code == 1
    assert "--column user_id=user_id --column item_id=sku --column timestamp=day" in refused.message
    mapped = ("--column", "user_id=user_id", "--column", "item_id=sku", "--column", "timestamp=day")
    unfiltered = beamtree("recommend", "model", "--log", "other.csv", *mapped, "--out", "other.parquet")
    assert "no column 'Was' to filter events by" in unfiltered.message
    assert "--no-filters" in unfiltered.message
    read = beamtree("recommend", "model", "--log", "other.csv", *mapped, "--no-filters", "--out", "other.parquet")
    assert read.code == 0, read.err
    assert "left out" not in read.message
    plain = ("--column", "user_id=user_id", "--column", "item_id=sku", "--row-order", "--no-filters")
    renamed.drop("day").write_csv("plain.csv")
    in_order = beamtree("recommend", "model", "--log", "plain.csv", *plain, "--out", "plain.parquet")
    assert in_order.code == 0, in_order.err
    assert pl.read_parquet("plain.parquet").equals(pl.read_parquet("other.parquet"))


@pytest.mark.usefixtures("shop")
def test_bad_rows_are_skipped_where_asked_to(beamtree: Command) -> None:
    fit(beamtree)
    lines = Path("shop.csv").read_text(encoding="utf-8").rstrip().splitlines()
    Path("bad.csv").write_text("\n".join([*lines, "K 000é;;2024-02-01;buy"]), encoding="utf-8")
    for command in (("recommend", "model"), ("evaluate", "model"), ("inspect", "model")):
        refused = beamtree(*command, "--log", "bad.csv")
        assert "bad.csv, line 482, column 'Art.-Nr.'" in refused.message
        assert "--bad-rows=skip" in refused.message
    skipped = beamtree("evaluate", "model", "--log", "bad.csv", "--bad-rows", "skip", "--rejects", "lists/bad.csv")
    assert skipped.code == 0, skipped.err
    assert "1 bad row left out, listed in lists/bad.csv" in skipped.message
    assert pl.read_csv("lists/bad.csv")["line"].to_list() == [482]


@pytest.mark.usefixtures("shop")
def test_histories_of_a_server_are_read_the_same_way(beamtree: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(beamtree)
    logs: list[InteractionLog] = []

    def note(_settings: Any, *, log: InteractionLog, **_others: Any) -> None:
        logs.append(log)

    monkeypatch.setattr("beamtree.serving.run.serve", note)
    monkeypatch.setattr("beamtree.serving.logs.log_to", lambda: None)
    served = beamtree("serve", "model", "--histories", "shop.csv", "--event-type", "Was=view", "--since", "2024-01-05")
    assert served.code == 0, served.err
    assert [len(log) for log in logs] == [80]
    assert "give one with --histories" in beamtree("serve", "model", "--since", "2024-01-05").message


@pytest.mark.usefixtures("shop")
def test_options_of_a_log_are_refused_without_one(beamtree: Command) -> None:
    fit(beamtree)
    refused = beamtree("recommend", "model", "--history", "000", "--users", "7", "--min-rating", "3")
    assert "--users and --min-rating are about a log" in refused.message
