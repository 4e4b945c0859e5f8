"""`python -m beamtree` is the command `beamtree`."""

from beamtree.cli.main import run

run()
