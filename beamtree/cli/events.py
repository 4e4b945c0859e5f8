"""beamtree events: look after the file of events that `serve --events` keeps, also while servers write to it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from beamtree.cli.console import results
from beamtree.data.vocabulary import Id
from beamtree.errors import DataError, InputError
from beamtree.serving.event_file import DAY, EventFile, FileLocked, FileReplaced, prune_all

app = typer.Typer(help="Copy a file of events, delete old ones, delete one user.", no_args_is_help=True)

LOCK_SECONDS = 10.0

FileArgument = Annotated[Path, typer.Argument(help="The file that `serve --events` was given.", metavar="FILE")]


@app.command()
def backup(
    file: FileArgument,
    to: Annotated[Path, typer.Argument(help="Where the copy goes; an older copy there is replaced.", metavar="TO")],
) -> None:
    """Write a consistent copy of all events, checked, while servers go on writing."""
    with _opened(file) as events:
        if to.exists() and to.samefile(file):
            raise InputError(f"{to} is the file of events itself. Give another name for the copy.")
        count = events.copy_to(to)
    results.print(f"Wrote {to}: {count:,} events, {to.stat().st_size / 1e6:,.1f} MB.", markup=False, soft_wrap=True)


@app.command()
def prune(
    file: FileArgument,
    *,
    days: Annotated[float, typer.Option(min=0, help="Delete events that arrived longer ago than this.")],
) -> None:
    """Delete old events. Their room in the file is used again; the file does not become smaller."""
    with _opened(file) as events:
        pruned = prune_all(events, older_than=DAY * days, lock_seconds=LOCK_SECONDS)
    results.print(f"Deleted {pruned:,} events that arrived more than {days:g} days ago.")


@app.command()
def forget(
    file: FileArgument,
    user: Annotated[str, typer.Argument(help="The user's id, as it was posted.", metavar="USER")],
    *,
    text: Annotated[bool | None, typer.Option("--text/--integer", help="What the id is, where both are there.")] = None,
) -> None:
    """Delete all events of one user. Servers that use the file forget them within a second."""
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
    """An existing file of events, closed at the end; what goes wrong with it is a DataError."""
    events = EventFile.existing(path)
    try:
        yield events
    except (FileLocked, FileReplaced) as error:
        raise DataError(f"{error} Nothing more was changed. Try again.") from error
    except sqlite3.Error as error:
        raise DataError(f"{path}: {error}. Nothing more was changed. Check the disk, then try again.") from error
    finally:
        events.close()
