"""What users did: a log read at start, and the events that came since."""

import threading
from collections import deque
from collections.abc import Iterable, Sequence

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

    def check_users(self, users: Sequence[Id]) -> None:
        """IdTypeError for a user that is spelt otherwise than those of the log."""
        if self.users is not None:
            self.users.check(users, what="user_id")

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

    def clear_events(self) -> None:
        """Forget the events, which are about to be added anew."""
        with self._lock:
            self._recent.clear()
