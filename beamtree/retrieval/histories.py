"""Histories of users, for requests by user id."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import polars as pl

from beamtree.data.columns import ITEM_ID, TIMESTAMP, USER_ID
from beamtree.data.interactions import InteractionLog
from beamtree.data.raw_ids import RawIds
from beamtree.data.vocabulary import Id, Vocabulary
from beamtree.errors import InputError, UnknownUsersError
from beamtree.retrieval.request import RecommendRequest


class HistoryStore(Protocol):
    """Histories by user."""

    def of(self, user: Id) -> Sequence[Id] | pl.Series | None:
        """Raw item ids of one user, oldest first; None for an unknown user."""


class LogHistories:
    """The histories of a log: interactions sorted by time, those of the same time in the order of the file."""

    def __init__(self, log: InteractionLog) -> None:
        frame = log.frame.sort(USER_ID, TIMESTAMP, maintain_order=True)
        counts = frame.group_by(USER_ID, maintain_order=True).len()
        self.user_ids: pl.Series = counts[USER_ID]
        self.users = RawIds(Vocabulary(self.user_ids), name="users of the log")
        self._offsets = np.concatenate([[0], np.cumsum(counts["len"].to_numpy())]).astype(np.int64)
        self._items: pl.Series = frame[ITEM_ID]

    def of(self, user: Id) -> pl.Series | None:
        """Raw item ids of one user, oldest first; None for a user that is not in the log."""
        if self.users.first_of_wrong_type([user]) is not None:
            return None
        dense = int(self.users.encode([user])[0])
        return None if dense < 0 else self.at(dense)

    def at(self, place: int) -> pl.Series:
        """Raw item ids, oldest first, of the user at a place of `user_ids`."""
        start, end = int(self._offsets[place]), int(self._offsets[place + 1])
        return self._items.slice(start, end - start)


def stored_history(request: RecommendRequest, histories: HistoryStore | None) -> Sequence[Id] | pl.Series | None:
    """The stored history of the request's user, None if there is none.

    InputError where no histories are stored, UnknownUsersError where the request refuses unknown users.
    """
    user = request.user
    if histories is None or user is None:
        raise InputError(f"User {user!r} was given without a history, and no histories are stored. Give the history.")
    stored = histories.of(user)
    if stored is None and request.options.unknown == "refuse":
        raise UnknownUsersError(f"Nothing is known about user {user!r}. Give a history instead.", [user])
    return stored
