"""beamtree serve has an option for each setting of a server, and no other spelling of it."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from beamtree.cli.serve import server_settings, takes_server_options
from beamtree.errors import InputError
from beamtree.serving.limits import Limits
from beamtree.serving.settings import ServerSettings


def given_by(*arguments: str) -> dict[str, Any]:
    """What a command is given of the options."""
    received: list[dict[str, Any]] = []

    @takes_server_options
    def command(*, given: dict[str, Any]) -> None:
        received.append(given)

    app = typer.Typer()
    app.command()(command)
    finished = CliRunner().invoke(app, list(arguments))
    assert finished.exit_code == 0, finished.output
    return received[0]


def settings_of(*arguments: str) -> ServerSettings:
    return server_settings(given_by(*arguments), model=Path("model"), admin_token="")


def test_without_options_the_settings_are_their_defaults() -> None:
    assert settings_of() == ServerSettings(model=Path("model"))


def test_every_setting_can_be_given() -> None:
    names = {*ServerSettings.model_fields, *(f"max_{name}" for name in Limits.model_fields)}
    lists_and_none = {"cors_origin", "threads", "events", "keep_events_days"}
    assert given_by().keys() == names - {"model", "admin_token", "limits"} - lists_and_none
    given = settings_of(
        *("--port", "0", "--no-live", "--events", "e.sqlite", "--keep-events-days", "2", "--threads", "3"),
        *("--cors-origin", "https://a.example", "--cors-origin", "https://b.example", "--max-k", "7"),
    )
    assert given == ServerSettings(
        model=Path("model"),
        port=0,
        live=False,
        events=Path("e.sqlite"),
        keep_events_days=2.0,
        threads=3,
        cors_origin=("https://a.example", "https://b.example"),
        limits=Limits(k=7),
    )


def test_all_that_is_out_of_bounds_is_named_as_it_is_spelt() -> None:
    with pytest.raises(
        InputError, match=r"^--model-name: .* got 'a b'; --max-beam: .* got 0\. See beamtree serve --help"
    ):
        settings_of("--model-name", "a b", "--max-beam", "0")
