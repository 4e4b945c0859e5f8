"""The command `beamtree`: parse, call, print. Expected errors end in one message, not in a traceback."""

import logging
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from beamtree import __version__
from beamtree.cli.compare import compare
from beamtree.cli.console import messages, results, say
from beamtree.cli.data import app as data_app
from beamtree.cli.demo import demo
from beamtree.cli.doctor import doctor
from beamtree.cli.evaluate import evaluate
from beamtree.cli.events import app as events_app
from beamtree.cli.export import app as export_app
from beamtree.cli.fit import fit
from beamtree.cli.inspect import inspect
from beamtree.cli.recommend import recommend
from beamtree.cli.reproduce import reproduce
from beamtree.cli.score import score
from beamtree.cli.serve import serve
from beamtree.cli.settings import settings
from beamtree.cli.similar import similar
from beamtree.cli.update import update
from beamtree.errors import BeamtreeError, InterruptedTraining

STOPPED_BY_SIGNAL = 130

app = typer.Typer(
    name="beamtree",
    help="Train a retriever and its tree index on an interaction log, and recommend by beam search.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data")
app.add_typer(export_app, name="export")
app.add_typer(events_app, name="events")
for command in (
    fit,
    update,
    evaluate,
    compare,
    reproduce,
    recommend,
    similar,
    score,
    inspect,
    serve,
    settings,
    doctor,
    demo,
):
    app.command()(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        results.print(__version__)
        raise typer.Exit


@app.callback()
def common(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log to standard error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train a retriever and its tree index on an interaction log, and recommend by beam search."""
    del version
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )


def run() -> None:
    """Entry point of the command."""
    run_command(app)


def run_command(command: Callable[[], object]) -> None:
    """A command whose foreseen errors end in one message and a code."""
    try:
        command()
    except InterruptedTraining as stopped:
        messages.print(str(stopped), style="yellow", markup=False)
        sys.exit(STOPPED_BY_SIGNAL)
    except BeamtreeError as error:
        messages.print("[red]Error:[/] ", end="")
        say(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        messages.print("[yellow]Stopped.[/]")
        sys.exit(STOPPED_BY_SIGNAL)
