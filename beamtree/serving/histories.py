"""What users did: a log read at start, and the events that came since."""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from beamtree.data.columns import ITEM_ID, TIMESTAMP, USER_ID
from beamtree.data.interactions import InteractionLog
from beamtree.data.vocabulary import Id, Vocabulary
from beamtree.serving.raw_ids import RawIds


class Histories:
    """Raw item ids of each user, oldest first: those of the log, then those of the events, at most `latest` of them.

    users: the users of the log; None without a log, where users may be spelt either way.
    """

    def __init__(self, log: InteractionLog | None, *, latest: int) -> None:
        self._latest = latest
        self._lock = threading.Lock()
        self._recent: dict[Id, deque[Id]] = {}
        self.users: RawIds | None = None
        if log is not None:
            frame = log.frame.sort(USER_ID, TIMESTAMP, maintain_order=True)
            counts = frame.group_by(USER_ID, maintain_order=True).len()
            self.users = RawIds(Vocabulary(counts[USER_ID]))
            self._offsets = np.concatenate([[0], np.cumsum(counts["len"].to_numpy())]).astype(np.int64)
            self._items: pl.Series = frame[ITEM_ID]

    def user_id_kind(self, user: Id) -> str | None:
        """How the log spells its users, where this id is spelt otherwise."""
        if self.users is None or self.users.first_of_wrong_type([user]) is None:
            return None
        return self.users.kind

    def of(self, user: Id) -> list[Id] | None:
        """The history of one user; None for a user that neither log nor events know."""
        with self._lock:
            recent = list(self._recent.get(user, ()))
        dense = -1
        if self.users is not None and self.users.first_of_wrong_type([user]) is None:
            dense = int(self.users.encode([user])[0])
        if dense < 0:
            return recent or None
        start, end = self._offsets[dense], self._offsets[dense + 1]
        start = max(start, end - (self._latest - len(recent)))
        logged: list[Id] = self._items[int(start) : int(end)].to_list()
        return logged + recent

    def add(self, events: Iterable[tuple[Id, Id]]) -> None:
        """Take note of (user, item) pairs, in order."""
        with self._lock:
            for user, item in events:
                recent: deque[Any] = self._recent.setdefault(user, deque(maxlen=self._latest))
                recent.append(item)
