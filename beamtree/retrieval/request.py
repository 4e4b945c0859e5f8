"""Requests and recommendations in raw ids, the same for Python, command line and server."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import numpy as np
import polars as pl

from beamtree.data.raw_ids import Ids
from beamtree.data.vocabulary import Id
from beamtree.errors import InputError
from beamtree.types import BoolArray

Fallback = Literal["popularity", "error"]
UnknownIds = Literal["ignore", "report", "refuse"]
Source = Literal["beam", "popularity"]

DEFAULT_K = 20
FALLBACKS: tuple[str, ...] = get_args(Fallback)
UNKNOWN_IDS: tuple[str, ...] = get_args(UnknownIds)


class ItemCondition(Protocol):
    """A condition on the item table. key: small, and equal for conditions that choose the same items."""

    @property
    def key(self) -> Hashable:
        """Names the condition."""

    def mask(self, item_table: pl.DataFrame) -> BoolArray:
        """Which items meet it, (items,)."""


@dataclass(frozen=True, eq=False)
class Allow:
    """Items that may be returned: these ids, and those that meet a condition; given both, both must hold."""

    ids: Ids | None = None
    where: pl.Expr | ItemCondition | None = None


ItemFilter = Ids | pl.Expr | Allow
"""Items to allow: their ids, a condition on the item table such as pl.col("category") == "Drama", or both."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RecommendOptions:
    """Options that do not depend on the user.

    k: number of items. beam: nodes kept per level, None = the model's setting. exclude_seen: leave out items of the
    history, None = the model's setting. allow: only these items may be returned, None = all. exclude: none of these
    may. fallback: what a history without any known item gets, popular items or an error. unknown: ids that the model
    has never seen are passed over (and reported in the answer), or refused. explain: say for each item how much each
    part of the score gave, and which items of the history it comes from.
    """

    k: int = DEFAULT_K
    beam: int | None = None
    exclude_seen: bool | None = None
    allow: ItemFilter | None = None
    exclude: Ids | None = None
    fallback: Fallback = "popularity"
    unknown: UnknownIds = "report"
    explain: bool = False

    def __post_init__(self) -> None:
        for name, number in (("k", self.k), ("beam", self.beam)):
            if number is None:
                continue
            if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 1:
                raise InputError(f"Expected {name} as an integer of at least 1, got {number!r}.")
            object.__setattr__(self, name, int(number))
        for name, choice, choices in (("fallback", self.fallback, FALLBACKS), ("unknown", self.unknown, UNKNOWN_IDS)):
            if choice not in choices:
                raise InputError(f"Expected {name} as one of {', '.join(map(repr, choices))}, got {choice!r}.")


@dataclass(frozen=True, eq=False, kw_only=True)
class RecommendRequest:
    """One request: a whole history of raw ids, oldest first, or a user whose history is stored.

    exclude: items that this request must not get. time: seconds since 1970. user_features, context: values by column,
    of those that the model was fitted with; what is left out is missing.
    """

    history: Ids | None = None
    user: Id | None = None
    time: float | None = None
    user_features: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    exclude: Ids | None = None
    options: RecommendOptions = RecommendOptions()

    def __post_init__(self) -> None:
        if self.history is None and self.user is None:
            raise InputError("A request needs a history, or a user whose history is stored: got neither.")


@dataclass(frozen=True)
class HistoryEvidence:
    """An item of the history that contributes to a recommendation: its title if known, its contribution to the
    score, and the part of the score.
    """

    item_id: Id
    title: str | None
    strength: float
    part: str


@dataclass(frozen=True)
class Explanation:
    """Explanation of the score of an item.

    parts: contribution of each part; they add up to the score. because_of: items of the history that contribute
    through memory or tower, the strongest first.
    """

    item_id: Id
    score: float
    parts: Mapping[str, float]
    because_of: tuple[HistoryEvidence, ...] = ()


@dataclass(frozen=True)
class Recommendations:
    """The answer to one request: raw ids, best first, and their scores (None for popular items).

    history_used: known items of the history. unknown_ids: ids of the request that the model has never seen.
    user_known: whether the stored histories know the user, None where a history was given. explanations: one for each
    item, where asked for and where the items come from the beam.
    """

    items: list[Id]
    scores: list[float | None]
    source: Source
    history_used: int
    unknown_ids: list[Id]
    user_known: bool | None = None
    explanations: tuple[Explanation, ...] | None = None
