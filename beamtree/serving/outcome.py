"""What came of a call: its result, or what it raised, as a value that can be handed on."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def outcome_of(
    call: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Result | BaseException:
    """Make a call; what it raises is returned. A panic of the data-frame library is no Exception, so all is caught."""
    try:
        return call(*arguments, **named)
    except BaseException as error:
        return error
