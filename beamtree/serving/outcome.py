"""The result of a call, or the exception that it raised, as a value."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def outcome_of(
    call: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Result | BaseException:
    """Call a function and return its exception, if any. Panics of polars are no Exception, so all are caught."""
    try:
        return call(*arguments, **named)
    except BaseException as error:
        return error
