"""beamtree serve: answer requests over HTTP."""

import logging
import os
import sys
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from beamtree.cli.log_options import LogOptions, takes_log_options
from beamtree.cli.options import ModelArgument
from beamtree.cli.server_options import server_settings, takes_server_options
from beamtree.data.ties import settle_ties
from beamtree.errors import InputError

TOKEN_VARIABLE = "BEAMTREE_ADMIN_TOKEN"


@takes_log_options
@takes_server_options
def serve(
    model: ModelArgument,
    *,
    histories: Annotated[
        str | None, typer.Option(help="Interaction log with the histories of users, for requests by user_id.")
    ] = None,
    given: dict[str, Any],
    reading: LogOptions,
) -> None:
    """Serve a model over HTTP: recommendations, items, the tree, metrics, and a page to explore them."""
    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client", "httptools") if find_spec(name) is None]
    if missing:
        raise InputError(f"Serving needs {', '.join(missing)}: pip install 'beamtree[serve]'.")
    if given.get("telemetry") and not _has_telemetry():
        raise InputError("--telemetry needs the OpenTelemetry SDK: pip install 'beamtree[telemetry]'.")
    if histories is None and reading.given():
        raise InputError(f"{' and '.join(reading.given())} say how a log is read: give one with --histories LOG.")
    from beamtree.serving.logs import log_to
    from beamtree.serving.run import serve as run_server

    settings = server_settings(given, model=model, admin_token=os.environ.get(TOKEN_VARIABLE, ""))
    log_queue = log_to()
    log = None
    if histories is not None:
        from beamtree.artefact import read_config

        config = read_config(model)
        log = settle_ties(reading.read(histories, config.log, say=_log_lines), config=config)
    run_server(settings, log=log, announce=_announce, log_queue=log_queue)


def _has_telemetry() -> bool:
    """Whether both packages of the extra are installed."""
    wanted = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    try:
        return all(find_spec(name) is not None for name in wanted)
    except ModuleNotFoundError:  # a package around them is missing
        return False


def _log_lines(lines: list[str]) -> None:
    logging.getLogger(__name__).info("histories: %s", "; ".join(lines))


def _announce(address: str) -> None:
    typer.echo(f"beamtree listens on {address} (page: {address}/, API documentation: {address}/docs)")
    sys.stdout.flush()
