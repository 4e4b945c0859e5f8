"""Ids on the command line: 50,181,172, or a JSON list if ids contain commas."""

import json

from beamtree.data.vocabulary import Id
from beamtree.errors import InputError
from beamtree.retrieval.recommender import Recommender


def split_ids(text: str, *, option: str) -> list[str]:
    """The ids that a text lists; InputError for what begins as a JSON list and is none."""
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        listed = json.loads(text)
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not all(isinstance(one, str | int) for one in listed):
        raise InputError(f"{option} takes ids such as 50,181,172, or a JSON list of them; got {text!r}.")
    return [str(one) for one in listed]


def find_items(recommender: Recommender, text: str, *, option: str) -> tuple[list[Id], list[str]]:
    """The items that a text lists and the model knows, and those texts that name none."""
    known, unknown = recommender.ids.find(split_ids(text, option=option))
    return recommender.ids.decode(known), unknown


def describe_unknown(recommender: Recommender, unknown: list[str]) -> str:
    """Which ids the model does not know, and what its ids look like."""
    named = ", ".join(unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
    example = recommender.ids.decode(recommender.most_popular[:1])[0]
    return f"The model does not know {named} (its item ids are {recommender.ids.kind} such as {example})"
