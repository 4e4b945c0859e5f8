"""The body of every response that is not a success."""

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
