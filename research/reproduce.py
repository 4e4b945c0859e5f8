"""python -m research.reproduce NAME --data LOG: as `beamtree reproduce`, for variants outside the product."""

import typer

from beamtree.cli.main import run_command
from beamtree.cli.reproduce import reproduce_command
from beamtree.compare.reproduce.catalogue import RESEARCH
from research.experiments import EXPERIMENTS

app = typer.Typer(pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]})
app.command()(reproduce_command(lambda: EXPERIMENTS, program=RESEARCH))

if __name__ == "__main__":
    run_command(app)
