"""Recommendations serialised to JSON, request by request, on the threads that search.

A large answer is thus never in memory as objects as a whole, and the event loop, which all clients share, only joins
bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from beamtree.serving.answers import Answers


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What the metrics count of an answer: popular items, and ids of the request that the model does not know."""

    is_fallback: bool
    unknown_ids: int


@dataclass(frozen=True, kw_only=True)
class WrittenAnswer(Counted):
    """The answer to one request as JSON."""

    text: bytes


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
    return WrittenAnswer(text=json_text(answer), **count(answer))


def count(answer: dict[str, Any]) -> dict[str, Any]:
    """The fields of `Counted`."""
    return {"is_fallback": answer["source"] == "popularity", "unknown_ids": len(answer.get("unknown_ids") or ())}
