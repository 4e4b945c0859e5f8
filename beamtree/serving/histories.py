"""What users did: a log read at start, and the events that came since."""

import threading
from collections import deque
from collections.abc import Iterable

from beamtree.data.interactions import InteractionLog
from beamtree.data.raw_ids import RawIds
from beamtree.data.vocabulary import Id
from beamtree.retrieval.histories import LogHistories


class Histories:
    """Raw item ids of each user, oldest first: those of the log, then those of the events, at most `latest` of them."""

    def __init__(self, log: InteractionLog | None, *, latest: int) -> None:
        self._latest = latest
        self._lock = threading.Lock()
        self._recent: dict[Id, deque[Id]] = {}
        self._logged = None if log is None else LogHistories(log)

    @property
    def users(self) -> RawIds | None:
        """The users of the log; None without a log, where users may be spelt either way."""
        return None if self._logged is None else self._logged.users

    def user_id_kind(self, user: Id) -> str | None:
        """How the log spells its users, where this id is spelt otherwise."""
        if self.users is None or self.users.first_of_wrong_type([user]) is None:
            return None
        return self.users.kind

    def of(self, user: Id) -> list[Id] | None:
        """The history of one user; None for a user that neither log nor events know."""
        with self._lock:
            recent = list(self._recent.get(user, ()))
        logged = None if self._logged is None else self._logged.of(user)
        if logged is None:
            return recent or None
        return [*logged.tail(self._latest - len(recent)).to_list(), *recent]

    def add(self, events: Iterable[tuple[Id, Id]]) -> None:
        """Take note of (user, item) pairs, in order."""
        with self._lock:
            for user, item in events:
                self._recent.setdefault(user, deque(maxlen=self._latest)).append(item)
