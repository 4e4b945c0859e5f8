"""Graceful Ctrl-C and SIGTERM: the current step is finished and saved; a second signal stops at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Inside, signals set a flag that the given function reads; outside, they do what they did before.

    In any thread but the main one signals cannot be received, and the function always says no.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt(signal.Signals(number).name)
        requested.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
