"""beamtree serve: answer requests over HTTP."""

import logging
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from beamtree.cli.log_options import LogOptions, takes_log_options
from beamtree.cli.options import ModelArgument
from beamtree.data.ties import settle_ties
from beamtree.errors import InputError

Settings = TypeVar("Settings", bound=BaseModel)

TOKEN_VARIABLE = "BEAMTREE_ADMIN_TOKEN"


@takes_log_options
def serve(
    model: ModelArgument,
    *,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 lets the system choose.")] = 8000,
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Searches at once; default: one per core.")
    ] = None,
    queue: Annotated[int, typer.Option(min=0, help="Work that may wait, in usual searches; more gets 503.")] = 128,
    timeout: Annotated[float, typer.Option(min=0.01, help="Seconds that a request may take.")] = 10.0,
    stop_seconds: Annotated[int, typer.Option(min=0, help="Seconds that running requests get after SIGTERM.")] = 30,
    histories: Annotated[
        str | None, typer.Option(help="Interaction log with the histories of users, for requests by user_id.")
    ] = None,
    events: Annotated[
        Path | None, typer.Option(help="SQLite file that keeps events; made where it is missing. Default: no events.")
    ] = None,
    keep_events_days: Annotated[
        float | None, typer.Option(min=0.001, help="Delete events that arrived longer ago; default: never.")
    ] = None,
    live: Annotated[
        bool, typer.Option(help="Events change at once what is recommended: what follows what, and the trend.")
    ] = True,
    watch_seconds: Annotated[float, typer.Option(min=0, help="Between looks for a new model; 0: never.")] = 1.0,
    cors_origin: Annotated[list[str] | None, typer.Option(help="Web origin that may call this server.")] = None,
    model_name: Annotated[
        str, typer.Option(help="Name of the model for the Open Inference Protocol: /v2/models/NAME.")
    ] = "beamtree",
    max_body: Annotated[int, typer.Option(min=1024, help="Largest body in bytes.")] = 1_048_576,
    max_batch: Annotated[int, typer.Option(min=1, help="Most requests in one call.")] = 64,
    max_history: Annotated[int, typer.Option(min=1, help="Longest history.")] = 5000,
    max_k: Annotated[int, typer.Option("--max-k", min=1, help="Most items of an answer.")] = 1000,
    max_beam: Annotated[int, typer.Option(min=1, help="Widest beam.")] = 2000,
    max_connections: Annotated[int, typer.Option(min=1, help="Most clients at once.")] = 1000,
    max_unread: Annotated[
        int, typer.Option(min=1, help="Most bytes of answers that wait for slow readers.")
    ] = 33_554_432,
    min_free_memory: Annotated[
        int, typer.Option(min=0, help="Bytes of memory that stay free: with less, large calls get 503.")
    ] = 134_217_728,
    min_free_disk: Annotated[
        int, typer.Option(min=0, help="Bytes of disk that stay free: with less, events get 503.")
    ] = 134_217_728,
    log_histories: Annotated[bool, typer.Option("--log-histories", help="Write histories into the log.")] = False,
    access_log: Annotated[bool, typer.Option(help="Write a line for each request.")] = True,
    telemetry: Annotated[
        bool, typer.Option("--telemetry", help="Send OpenTelemetry traces, as the OTEL_* variables say.")
    ] = False,
    reading: LogOptions,
) -> None:
    """Serve a model over HTTP: recommendations, items, the tree, metrics, and a page to look at."""
    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client", "httptools") if find_spec(name) is None]
    if missing:
        raise InputError(f"Serving needs {', '.join(missing)}: pip install 'beamtree[serve]'.")
    if telemetry and not _has_telemetry():
        raise InputError("--telemetry needs the OpenTelemetry SDK: pip install 'beamtree[telemetry]'.")
    if histories is None and reading.given():
        raise InputError(f"{' and '.join(reading.given())} say how a log is read: give one with --histories LOG.")
    from beamtree.serving.limits import Limits
    from beamtree.serving.logs import log_to
    from beamtree.serving.run import serve as run_server
    from beamtree.serving.settings import ServerSettings

    settings = _checked(
        ServerSettings,
        model=model,
        model_name=model_name,
        host=host,
        port=port,
        threads=threads or os.cpu_count() or 1,
        queue=queue,
        timeout_seconds=timeout,
        stop_seconds=stop_seconds,
        watch_seconds=watch_seconds,
        connections=max_connections,
        unread_bytes=max_unread,
        min_free_memory=min_free_memory,
        min_free_disk=min_free_disk,
        events=events,
        keep_events_days=float("inf") if keep_events_days is None else keep_events_days,
        live=live,
        admin_token=os.environ.get(TOKEN_VARIABLE, ""),
        cors_origins=tuple(cors_origin or ()),
        log_histories=log_histories,
        access_log=access_log,
        telemetry=telemetry,
        limits=_checked(Limits, body_bytes=max_body, batch=max_batch, history=max_history, k=max_k, beam=max_beam),
    )
    log_queue = log_to()
    log = None
    if histories is not None:
        from beamtree.artefact import read_config

        config = read_config(model)
        log = settle_ties(reading.read(histories, config.log, say=_log_lines), config=config)
    run_server(settings, log=log, announce=_announce, log_queue=log_queue)


def _has_telemetry() -> bool:
    """Whether both packages of the extra are there."""
    wanted = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    try:
        return all(find_spec(name) is not None for name in wanted)
    except ModuleNotFoundError:  # a package around them is missing
        return False


def _checked(kind: type[Settings], **options: object) -> Settings:
    """The settings; InputError that names what is out of bounds."""
    try:
        return kind(**options)
    except ValidationError as error:
        faults = [f"{fault['loc'][0]}: {fault['msg'].lower()}, got {fault['input']!r}" for fault in error.errors()]
        raise InputError(f"These settings cannot be used: {'; '.join(faults)}. See beamtree serve --help.") from None


def _log_lines(lines: list[str]) -> None:
    logging.getLogger(__name__).info("histories: %s", "; ".join(lines))


def _announce(address: str) -> None:
    typer.echo(f"beamtree answers on {address} (the page: {address}/, its interface: {address}/docs)")
    sys.stdout.flush()
