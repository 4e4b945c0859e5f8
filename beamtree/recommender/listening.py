"""The receiver of training events: a given listener, a progress bar, or the log."""

import logging
from contextlib import AbstractContextManager, nullcontext

from beamtree.training.events import Event, Listener, StepDone

log = logging.getLogger(__name__)


def listening(listen: Listener | None, *, progress: bool | None) -> AbstractContextManager[Listener]:
    """The given listener, a progress bar, or the log. progress: None = a bar in a terminal and in a notebook."""
    if listen is not None:
        return nullcontext(listen)
    from beamtree.progress import is_interactive, progress_on_stderr

    if is_interactive() if progress is None else progress:
        return progress_on_stderr()
    return nullcontext(log_event)


def log_event(event: Event) -> None:
    """Log an event, unless it is one of the many steps."""
    if not isinstance(event, StepDone):
        log.info("%s", event)
