"""What the driver and the first worker tell each other during learning: events one way, a wish to stop the other."""

import time
from collections.abc import Callable
from math import inf
from typing import Any

from beamtree.training.events import Event

SECONDS_BETWEEN_POSTS = 0.5


class Mailbox:
    """An actor beside the driver that keeps what was posted until it is taken."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._is_stopping = False

    def post(self, events: list[Event]) -> bool:
        """Keep events for the driver; whether it wants learning to stop."""
        self._events += events
        return self._is_stopping

    def take(self) -> list[Event]:
        """All events since the last call."""
        events, self._events = self._events, []
        return events

    def stop(self) -> None:
        """Tell the workers to stop after the step at hand."""
        self._is_stopping = True


class Sender:
    """The first worker's end: the first event is sent at once, later ones together, twice a second. Learning does not
    wait for the mailbox: its answer is read when the next events are sent."""

    def __init__(self, mailbox: Any, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._mailbox = mailbox
        self._clock = clock
        self._waiting: list[Event] = []
        self._answer: Any = None
        self._sent_at = -inf
        self._is_stopping = False

    def listen(self, event: Event) -> None:
        """Send an event, sooner or later."""
        self._waiting.append(event)
        if self._clock() - self._sent_at >= SECONDS_BETWEEN_POSTS:
            self._read_answer(seconds=0.0)
            self._post()

    def is_stopping(self) -> bool:
        """Whether the driver wanted learning to stop when it last answered."""
        return self._is_stopping

    def close(self) -> None:
        """Send what waits, and return when it has arrived."""
        self._post()
        self._read_answer(seconds=None)

    def _post(self) -> None:
        self._answer = self._mailbox.post.remote(self._waiting)
        self._waiting = []
        self._sent_at = self._clock()

    def _read_answer(self, *, seconds: float | None) -> None:
        import ray

        if self._answer is not None and ray.wait([self._answer], timeout=seconds)[0]:
            self._is_stopping = ray.get(self._answer)
