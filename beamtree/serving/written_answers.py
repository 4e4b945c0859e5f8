"""Recommendations serialised to JSON, request by request, on the threads that search.

A large answer is thus never in memory as objects as a whole, and the event loop, which all clients share, only joins
bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from beamtree.serving.answers import Answers


@dataclass(frozen=True)
class WrittenAnswer:
    """The answer to one request as JSON, and figures for the metrics."""

    text: bytes
    is_fallback: bool
    unknown_ids: int


def json_text(content: Any) -> bytes:
    """A value as JSON; numbers that are not finite become null."""
    return to_json(content, bytes_mode="base64", fallback=str)


def write_answers(outcomes: Sequence[Answers | BaseException]) -> list[list[WrittenAnswer] | BaseException]:
    """The answers of each call, or its exception."""
    return [
        outcome if isinstance(outcome, BaseException) else [_written(answer) for answer in outcome]
        for outcome in outcomes
    ]


def join_answers(answers: Sequence[WrittenAnswer], **fields: Any) -> bytes:
    """One JSON object: the fields, and the answers as `results`."""
    return b'%b,"results":[%b]}' % (json_text(fields)[:-1], b",".join(answer.text for answer in answers))


def _written(answer: dict[str, Any]) -> WrittenAnswer:
    return WrittenAnswer(
        json_text(answer),
        is_fallback=answer["source"] == "popularity",
        unknown_ids=len(answer.get("unknown_ids") or ()),
    )
