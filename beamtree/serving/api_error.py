"""Errors of the interface: all have one shape, with a code for programs and a message for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from beamtree.errors import IdTypeError
from beamtree.serving.limits import CONDITION_CHARACTERS, HEADER_BYTES, ID_CHARACTERS, LISTED_FAULTS

SHOWN_FAULTS = 20
SHOWN_CHARACTERS = 80
ID_PROBLEM = f"an id is an integer of 64 bits or a text of at most {ID_CHARACTERS} characters"
LIMIT_EXCEEDED = "limit_exceeded"
CLIENT_HAS_GONE = 499
VALUE_PROBLEM = f"a value is true, false, a finite number or a text of at most {CONDITION_CHARACTERS:,} characters"
NO_SUCH_FIELD = "there is no such field (see /docs)"
_BRANCH_MARKS = ("one", "many", "constrained-int", "constrained-str", "int", "str", "float", "bool")
_BRANCH_MARKS_BEGIN = ("function-", "list[", "union[", "[key]")


class ApiError(Exception):
    """A request that is answered with an error: HTTP status, code, message, and details such as the faulty fields."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        details: Sequence[Any] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = list(details)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        return {"error": {"code": self.code, "message": self.message, "details": self.details}}


def headers_too_large() -> ApiError:
    """431: the headers exceed `HEADER_BYTES`."""
    return ApiError(
        431,
        "headers_too_large",
        f"Address and headers have at most {HEADER_BYTES:,} bytes here. Send fewer headers, and ids in a body.",
        headers={"Connection": "close"},
    )


def too_busy(message: str) -> ApiError:
    """503, to be tried again in a second."""
    return ApiError(503, "overloaded", message, headers={"Retry-After": "1"})


def timed_out(seconds: float) -> ApiError:
    """503: no answer in time."""
    return ApiError(
        503,
        "timed_out",
        f"No answer within {seconds:g} s. Try again, or ask for less (a smaller beam, k or batch).",
        headers={"Retry-After": "1"},
    )


def wrong_id_type(error: IdTypeError) -> ApiError:
    """422: an id of another type than those of the model or of the log."""
    return ApiError(422, "wrong_id_type", str(error), details=[error.id])


def invalid_body(error: ValidationError) -> ApiError:
    """400 for what is not JSON, 422 for JSON that does not validate; all faulty fields are listed, unless very many."""
    if (count := error.error_count()) > LISTED_FAULTS:
        message = f"The body has {count:,} faults, too many to list. Compare one request of it with /docs."
        return ApiError(422, "invalid_request", message)
    faults = error.errors(include_url=False)
    if faults[0]["type"] == "json_invalid":
        return ApiError(400, "bad_json", f"The body is not JSON: {faults[0]['msg'].removeprefix('Invalid JSON: ')}.")
    if faults[0]["type"] == LIMIT_EXCEEDED:
        field, limit = _where(faults[0]["loc"]), faults[0]["ctx"]
        exceeded = {"field": field, "limit": limit["limit"], "got": limit["got"]}
        return ApiError(422, LIMIT_EXCEEDED, f"{field or 'the body'}: {limit['message']}.", details=[exceeded])
    details: dict[str, dict[str, Any]] = {}
    for fault in faults:
        field, problem = _where(fault["loc"]), fault["msg"].removeprefix("Value error, ")
        branch = str(fault["loc"][-1]) if fault["loc"] else ""
        if branch == "bool":
            problem = VALUE_PROBLEM
        elif branch.startswith("constrained-"):
            problem = ID_PROBLEM
        elif fault["type"] == "extra_forbidden":
            problem = NO_SUCH_FIELD
        details.setdefault(field, {"field": field, "problem": problem, "got": shortened(fault["input"])})
    listed = list(details.values())[:SHOWN_FAULTS]
    first = listed[0]
    more = f" ({len(details) - 1} more)" if len(details) > 1 else ""
    message = f"{first['field'] or 'the body'}: {first['problem']}; got {first['got']}{more}."
    return ApiError(422, "invalid_request", message, details=listed)


def shortened(value: object) -> str:
    """A value for a message, at most a line long."""
    text = repr(value[: SHOWN_CHARACTERS + 1] if isinstance(value, list | str) else value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _where(location: tuple[int | str, ...]) -> str:
    """requests[0].history[3]; without the marks that tell the branches of a union apart."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part not in _BRANCH_MARKS and not part.startswith(_BRANCH_MARKS_BEGIN):
            text += f".{part[:SHOWN_CHARACTERS]}" if text else part[:SHOWN_CHARACTERS]
    return text
