"""Groups of options as one parameter of a command: a dataclass whose fields are the options."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, get_type_hints


@dataclass(frozen=True, kw_only=True)
class OptionGroup:
    """Options of a command; each field is annotated as a parameter of typer's would be, and has a default."""

    def given(self) -> list[str]:
        """The names of the options that were given."""
        values = {field: getattr(self, field.name) for field in fields(self)}
        return [
            f"--{field.name.replace('_', '-')}"
            for field, value in values.items()
            if value != field.default and value != []
        ]


def takes_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command with an option for each field in place of its parameters that are groups."""
    signature, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, OptionGroup)}

    def spread_out(parameter: inspect.Parameter) -> list[inspect.Parameter]:
        if parameter.name not in groups:
            return [parameter]
        kinds = get_type_hints(groups[parameter.name], include_extras=True)
        return [
            parameter.replace(name=field.name, default=field.default, annotation=kinds[field.name])
            for field in fields(groups[parameter.name])
        ]

    @wraps(command)
    def spread(*arguments: Any, **passed: Any) -> None:
        for name, group in groups.items():
            passed[name] = group(**{field.name: passed.pop(field.name, field.default) for field in fields(group)})
        command(*arguments, **passed)

    options = [option for parameter in signature.parameters.values() for option in spread_out(parameter)]
    spread.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
    return spread
