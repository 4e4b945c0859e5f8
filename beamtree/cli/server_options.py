"""The options of `beamtree serve`, from the settings of a server, where they are declared and documented."""

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Annotated, Any, get_origin

import typer
from pydantic import BaseModel, ValidationError

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
        values = {option.name: passed.pop(option.name) for option in options}
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
