"""beamtree events: maintain the event store of `serve --events`, also while servers write to it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from beamtree.cli.console import results, show
from beamtree.data.vocabulary import Id
from beamtree.errors import DataError, InputError
from beamtree.serving.event_file import DAY, EventFile, FileLocked, FileReplaced, prune_all

app = typer.Typer(help="Back up an event store, delete old events, delete a user.", no_args_is_help=True)

LOCK_SECONDS = 10.0

FileArgument = Annotated[Path, typer.Argument(help="The event store given to `serve --events`.", metavar="FILE")]


@app.command()
def backup(
    file: FileArgument,
    to: Annotated[Path, typer.Argument(help="Path of the copy; an older copy is replaced.", metavar="TO")],
) -> None:
    """Write and check a consistent copy of all events while servers keep writing."""
    with _opened(file) as events:
        if to.exists() and to.samefile(file):
            raise InputError(f"{to} is the file of events itself. Give another name for the copy.")
        count = events.copy_to(to)
    show(f"Wrote {to}: {count:,} events, {to.stat().st_size / 1e6:,.1f} MB.")


@app.command()
def prune(
    file: FileArgument,
    *,
    days: Annotated[float, typer.Option(min=0, help="Delete events older than this number of days.")],
) -> None:
    """Delete old events. Their space in the file is reused; the file does not shrink."""
    with _opened(file) as events:
        pruned = prune_all(events, older_than=DAY * days, lock_seconds=LOCK_SECONDS)
    results.print(f"Deleted {pruned:,} events that arrived more than {days:g} days ago.")


@app.command()
def forget(
    file: FileArgument,
    user: Annotated[str, typer.Argument(help="The user's id, as it was posted.", metavar="USER")],
    *,
    text: Annotated[bool | None, typer.Option("--text/--integer", help="The type of the id, if both exist.")] = None,
) -> None:
    """Delete all events of one user. Servers that share the file drop them within a second."""
    with _opened(file) as events:
        spelt = [found for found in events.users_spelt(user) if text is None or isinstance(found, str) == text]
        if len(spelt) > 1:
            raise InputError(f"There are a user {user!r} and a user {user}. Add --text or --integer to say which.")
        erased = _erase(events, spelt[0]) if spelt else 0
    results.print(f"Deleted {erased:,} events. Copies that were made before still hold what they held.")


def _erase(events: EventFile, user: Id) -> int:
    with events.transaction(lock_seconds=LOCK_SECONDS):
        erased = events.erase_user(user)
    events.scrub()
    return erased


@contextmanager
def _opened(path: Path) -> Iterator[EventFile]:
    """An existing event store, closed at the end; failures are a DataError."""
    events = EventFile.existing(path)
    try:
        yield events
    except (FileLocked, FileReplaced) as error:
        raise DataError(f"{error} Nothing more was changed. Try again.") from error
    except sqlite3.Error as error:
        raise DataError(f"{path}: {error}. Nothing more was changed. Check the disk, then try again.") from error
    finally:
        events.close()
