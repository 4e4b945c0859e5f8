"""Event types, users and contexts on the command line: a model remembers how its log is weighed, for every command."""

from pathlib import Path

import polars as pl
import pytest

from tests.cli.beamtree_command import Command

FIT = ("fit", "shop.csv", "--preset", "instant", "--out", "model", "--column", "event_type=what")


@pytest.fixture
def shop(folder: Path) -> Path:
    """shop.csv: forty users view ten items each and buy two; users.csv: where they live."""
    rows = [
        (
            user,
            (user + place) % 12 + 100 * (place % 6 == 5),
            1_700_000_000 + 86_400 * place,
            "buy" if place % 6 == 5 else "view",
        )
        for user in range(40)
        for place in range(12)
    ]
    log = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "what"], orient="row")
    log.with_columns(device=pl.lit("phone")).write_csv(folder / "shop.csv")
    pl.DataFrame({"user_id": range(40), "city": ["Oslo", "Rome"] * 20}).write_csv(folder / "users.csv")
    return folder


@pytest.mark.usefixtures("shop")
def test_a_model_remembers_what_events_count(beamtree: Command) -> None:
    refused = beamtree(*FIT, "--set", "log.event_weights={buy=5}")
    assert refused.code == 1
    assert "event_weights says nothing of 'view'. The log has 'view' (400 rows), 'buy' (80 rows)" in refused.message
    fitted = beamtree(*FIT, "--set", 'log.target_events=["buy"]', "--set", "log.half_life_days=30")
    assert fitted.code == 0, fitted.err
    assert "events weighed alike; targets: buy" in fitted.message
    assert "an interaction counts half as much as one 30 days later" in fitted.message
    evaluated = beamtree("evaluate", "model", "--log", "shop.csv")
    assert evaluated.code == 0, evaluated.err
    assert "labels of type buy" in evaluated.out + evaluated.message
    pl.read_csv("shop.csv").drop("what").write_csv("plain.csv")
    missing = beamtree("recommend", "model", "--log", "plain.csv", "--users", "7", "-k", "3")
    assert "no column 'what' (as event_type)" in missing.message
    shown = beamtree("recommend", "model", "--log", "plain.csv", "--no-filters", "--users", "7", "-k", "3")
    assert shown.code == 0, shown.err


@pytest.mark.usefixtures("shop")
def test_users_and_contexts_are_shown_with_what_they_were_taken_for(beamtree: Command) -> None:
    fitted = beamtree(*FIT, "--users", "users.csv", "--set", "log.features.context.device=category")
    assert fitted.code == 0, fitted.err
    assert "features of the users: city (2 values)" in fitted.message
    assert "features of the context: device (1 values)" in fitted.message
    refused = beamtree("update", "model", "--users", "users.csv", "--items", "users.csv")
    assert "--users describes the users of new rows" in refused.message
