"""The errors that the OpenAPI document lists for each kind of route."""

from typing import Any

from pydantic import BaseModel, Field


class ErrorText(BaseModel):
    """What went wrong."""

    code: str = Field(description="for programs, such as unknown_ids")
    message: str = Field(description="for people: what was expected, what arrived, what to do")
    details: list[Any] = Field(description="the faulty fields or ids")


class ErrorAnswer(BaseModel):
    """An error."""

    error: ErrorText


Responses = dict[int | str, dict[str, Any]]


def _errors(reasons: dict[int, str]) -> Responses:
    return {status: {"model": ErrorAnswer, "description": reason} for status, reason in reasons.items()}


JSON_BODY_ERRORS = _errors(
    {
        400: "The body is not JSON",
        408: "The body arrived too slowly",
        413: "The body is too large",
        415: "The body is not application/json",
        422: "The body is invalid: unknown or faulty fields, limits, ids of the wrong type, unknown ids with 'refuse'",
    }
)
SEARCH_ERRORS = _errors({503: "Too many requests wait, or no answer in time: try again after Retry-After seconds"})
ITEM_ERRORS = _errors({404: "The model does not know this item", 422: "A parameter is invalid"}) | SEARCH_ERRORS
NODE_ERRORS = _errors({404: "The tree has no such node", 422: "A parameter is invalid"}) | SEARCH_ERRORS
QUERY_ERRORS = _errors({422: "A parameter is invalid"}) | SEARCH_ERRORS
ADMIN_ERRORS = _errors(
    {401: "The token is missing or wrong", 409: "The model was refused, or there is no previous one"}
)
