"""beamtree serve: answer requests over HTTP. Its options are the settings of a server, which document them."""

import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from importlib.util import find_spec
from typing import Annotated, Any, get_origin

import typer
from pydantic import BaseModel, ValidationError

from beamtree.cli.log_options import LogOptions
from beamtree.cli.option_groups import takes_option_groups
from beamtree.cli.options import ModelArgument
from beamtree.data.ties import settle_ties
from beamtree.errors import InputError
from beamtree.serving.limits import Limits
from beamtree.serving.settings import ServerSettings

PARAMETER = "given"
LIMIT_PREFIX, LIMIT_PANEL = "max_", "Limits of one request"
NOT_OPTIONS = ("model", "admin_token", "limits")
"""An argument, an environment variable, and a group with options of its own."""


def takes_server_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with an option for each setting in place of its parameter `given`: their values by name."""
    signature = inspect.signature(command)
    options = [*_options(ServerSettings), *_options(Limits, prefix=LIMIT_PREFIX, panel=LIMIT_PANEL)]
    own = [parameter for parameter in signature.parameters.values() if parameter.name != PARAMETER]

    @wraps(command)
    def spread(*arguments: Any, **passed: Any) -> None:
        values = {option.name: passed.pop(option.name, option.default) for option in options}
        given = {name: value for name, value in values.items() if value not in (None, [])}
        command(*arguments, **passed, **{PARAMETER: given})

    spread.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return spread


def server_settings(given: dict[str, Any], **others: Any) -> ServerSettings:
    """The settings of a server from the values of options; InputError that names all that are out of bounds."""
    own = {name: value for name, value in given.items() if name in ServerSettings.model_fields}
    limits = {name.removeprefix(LIMIT_PREFIX): value for name, value in given.items() if name not in own}
    try:
        return ServerSettings(limits=limits, **own, **others)
    except ValidationError as error:
        raise InputError(f"{'; '.join(map(_fault, error.errors()))}. See beamtree serve --help.") from None


def _options(settings: type[BaseModel], *, prefix: str = "", panel: str | None = None) -> Iterator[inspect.Parameter]:
    for name, field in settings.model_fields.items():
        if name in NOT_OPTIONS:
            continue
        kind: Any = list[str] if get_origin(field.annotation) is tuple else field.annotation
        default = field.default if isinstance(field.default, int | float | str) else None
        option = typer.Option(help=field.description, rich_help_panel=panel)
        yield inspect.Parameter(
            prefix + name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind | None, option]
        )


def _fault(fault: Any) -> str:
    place = "_".join(str(part) for part in fault["loc"]).replace("limits_", LIMIT_PREFIX)
    return f"--{place.replace('_', '-')}: {fault['msg'].lower()}, got {fault['input']!r}"


TOKEN_VARIABLE = "BEAMTREE_ADMIN_TOKEN"


@takes_option_groups
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
        log = settle_ties(reading.read(histories, config.log, tell=_log_lines), config=config)
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
