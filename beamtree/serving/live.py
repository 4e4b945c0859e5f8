"""Online updates: a thread reads events from their file and adds them to the counts of the served model's memory.

Replicas read the same file and thus count the same. Events up to the newest interaction of the model's log are not
counted again; they only extend histories. A new model starts with the events that are newer than its log. An event has
the weight that the model was fitted with for its type, or 1 without a type. An event from the future counts as of now:
the trend fades with the newest event, so that a single one would erase it.
"""

import logging
import sqlite3
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path

import polars as pl

from beamtree.data.events import EventTypes
from beamtree.data.parse import seconds_per_unit
from beamtree.data.vocabulary import Id
from beamtree.model.live_memory import Interaction, LiveMemory
from beamtree.model.memory import WINDOW, Memory
from beamtree.serving.histories import Histories
from beamtree.serving.loaded_model import LoadedModel
from beamtree.types import NOTHING

log = logging.getLogger(__name__)

SECONDS_BETWEEN_READINGS = 0.5
EVENTS_AT_A_TIME = 5_000
"""Read between two pauses, so that a burst of events takes only part of one core."""
MAX_USERS = 50_000
"""Users whose latest items are cached, to know what an event follows."""


class LiveEvents:
    """Adds the events of a file to the memory of the model that `current` returns.

    histories: of the users in the log, if one was given.
    """

    def __init__(
        self,
        path: Path,
        *,
        current: Callable[[], LoadedModel],
        histories: Histories,
        lock_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._current = current
        self._histories = histories
        self._clock = clock
        self._connection = sqlite3.connect(path, timeout=lock_seconds, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA query_only = ON")
        self._model: LoadedModel | None = None
        self._memory: LiveMemory | None = None
        self._erasures = 0
        self._last_read = 0
        self._seconds: float | None = None
        self._newest_counted = 0.0
        self._window = 0
        self._event_types: EventTypes | None = None
        self._before_event: OrderedDict[Id, deque[int]] = OrderedDict()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="live events", daemon=True)

    @property
    def num_interactions(self) -> int:
        """Events that the current model has counted beside its log."""
        return 0 if self._memory is None else self._memory.num_interactions

    def start(self) -> None:
        """Start reading, until closed."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._connection.close()

    def read(self) -> bool:
        """Count new events of the file; returns whether there may be more."""
        model = self._current()
        erasures = self._connection.execute("SELECT erasures FROM changes").fetchone()[0]
        if model is not self._model or erasures != self._erasures:  # erased users are forgotten here too
            self._model, self._erasures = model, erasures
            self._start_over(model)
        if self._memory is None:
            return False
        rows = self._connection.execute(
            "SELECT id, user, item, timestamp, event_type FROM events WHERE id > ? ORDER BY id LIMIT ?",
            (self._last_read, EVENTS_AT_A_TIME),
        ).fetchall()
        if not rows:
            return False
        dense = _encoded([row[2] for row in rows], model)
        now = self._clock()
        met = []
        for (_, user, _, timestamp, event_type), item in zip(rows, dense, strict=True):
            weight = 1.0 if self._event_types is None else self._event_types.weight_of(event_type)
            if item < 0 or weight is None:
                continue
            before = self._before(user, model)
            moment = None if self._seconds is None else min(timestamp, now) / self._seconds
            if moment is None or moment > self._newest_counted:
                met.append(Interaction(item, list(before), moment, weight))
            before.append(item)
        self._last_read = rows[-1][0]
        if met:
            self._memory.add(met)
            model.recommender.remember(self._memory.memory())
        return len(rows) == EVENTS_AT_A_TIME

    def _start_over(self, model: LoadedModel) -> None:
        """Start again with the first event of the file and the counts of the model."""
        self._last_read, self._memory = 0, None
        self._before_event.clear()
        counted = model.artefact.part("memory")
        if not counted:
            return
        memory = Memory.from_arrays(counted)
        settings = model.artefact.config.log
        self._event_types = EventTypes.of(settings.event_weights, settings.target_events)
        self._window = WINDOW
        self._memory = LiveMemory(memory, window=self._window)
        self._newest_counted = memory.trend.moment
        self._seconds = seconds_per_unit(pl.Series([memory.trend.moment]))

    def _before(self, user: Id, model: LoadedModel) -> "deque[int]":
        """The latest items of a user before the event at hand."""
        known = self._before_event.get(user)
        if known is None:
            items = model.ids.encode(self._histories.logged(user, count=self._window))
            known = deque(items[items >= 0].tolist(), maxlen=self._window)
            self._before_event[user] = known
            if len(self._before_event) > MAX_USERS:
                self._before_event.popitem(last=False)
        else:
            self._before_event.move_to_end(user)
        return known

    def _work(self) -> None:
        while not self._stop.wait(SECONDS_BETWEEN_READINGS):
            try:
                while self.read() and not self._stop.wait(SECONDS_BETWEEN_READINGS / 5):
                    pass
            except BaseException:  # the thread must not end unnoticed; panics of polars are no Exception
                log.exception("events could not be counted")


def _encoded(items: list[Id], model: LoadedModel) -> list[int]:
    """Dense ids of raw items; NOTHING for items that the model does not know, or whose ids are of another type."""
    is_spelt_alike = [isinstance(item, int) == model.ids.holds_integers for item in items]
    known = iter(model.ids.encode([item for item, alike in zip(items, is_spelt_alike, strict=True) if alike]).tolist())
    return [next(known) if alike else NOTHING for alike in is_spelt_alike]
