"""A trial of a new model before it is served: every kind of answer once, in a process of its own.

Files of unknown origin can take all memory, never end, or kill the process that reads them. The trial runs in a child
process under limits of memory and time, so that whatever happens there is a refused model and nothing else.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
from pydantic_core import to_json

from beamtree import native
from beamtree.artefact import faults_of, read_model_manifest
from beamtree.data.columns import CATEGORY
from beamtree.data.requests import Histories, Requests
from beamtree.errors import ArtefactError, InputError
from beamtree.machine import available_memory
from beamtree.serving.catalogue import count_values
from beamtree.serving.loaded_model import LoadedModel, load_model
from beamtree.storage import check_files

TRIAL_SECONDS = 600
TRIED_ITEMS = 5
ROWS_AT_A_TIME = 65_536
SHARE_OF_MEMORY = 0.9
"""What the child may take of the memory that is available: the server goes on answering beside it."""
SHOWN_CHARACTERS = 300
NICENESS = 10
PACKAGE = Path(__file__).resolve().parents[2]
_SAFE_TYPES = (pl.Boolean, pl.String)


def try_in_child(directory: Path) -> str:
    """Load and try a model in a child process; its version, or ArtefactError where it is not fit to be served.

    What a look at the manifest and the sizes of the files refuses, such as half a copy, starts no process.
    """
    check_files(directory, read_model_manifest(directory))
    search_path = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": search_path, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    try:
        child = subprocess.run(
            [sys.executable, "-c", "from beamtree.serving.trial import main; main()", str(directory)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ArtefactError(f"{directory} was not ready within {TRIAL_SECONDS} s. Fit a smaller model.") from None
    except OSError as error:
        raise ArtefactError(f"{directory} could not be tried: no process could be started ({error}).") from error
    return _verdict(directory, child)


def try_model(model: LoadedModel, *, directory: Path) -> None:
    """Ask a model everything that requests will ask; ArtefactError where an answer cannot be given.

    directory: where the model comes from, for the message.
    """
    with faults_of(directory):
        _search(model)
        _tell_of_items(model)


def main() -> None:
    """The child: load and try the model of a folder under limits, and print what came of it as JSON."""
    directory = Path(sys.argv[1])
    limit_this_process()
    try:
        model = load_model(directory)
        try_model(model, directory=directory)
        sys.stdout.write(json.dumps({"version": model.version}))
    except ArtefactError as error:
        sys.stdout.write(json.dumps({"refused": str(error)}))


def limit_this_process() -> None:
    """Bound memory and time, give way to the server, and be the first to go where the machine runs out of memory."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (TRIAL_SECONDS, TRIAL_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if native.is_available():
        native.set_threads(1)
    available, status = available_memory(), Path("/proc/self/statm")
    if available is not None and status.exists():
        held = int(status.read_text().split()[0]) * resource.getpagesize()
        limit = held + int(SHARE_OF_MEMORY * available)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        Path("/proc/self/oom_score_adj").write_text("1000")


def _verdict(directory: Path, child: "subprocess.CompletedProcess[bytes]") -> str:
    try:
        said = json.loads(child.stdout)
    except ValueError:
        said = {}
    if child.returncode == 0 and "version" in said:
        return str(said["version"])
    if child.returncode == 0 and "refused" in said:
        raise ArtefactError(str(said["refused"]))
    how = f"exit code {child.returncode}"
    if child.returncode < 0:
        how = signal.Signals(-child.returncode).name
    last = child.stderr.decode(errors="replace").strip()[-SHOWN_CHARACTERS:]
    raise ArtefactError(
        f"{directory} cannot be served: the process that tried it ended with {how}{': ' if last else ''}{last}. Give "
        "it more memory if that is what was missing, or fit the model again."
    )


def _search(model: LoadedModel) -> None:
    """Search for nobody and for someone with popular items: all scores must be numbers, and can be explained."""
    popular = model.catalogue.most_popular[:TRIED_ITEMS]
    found = model.recommender.engine.search(
        Requests(Histories.of_lists([[], popular])), k=1, beam_width=model.artefact.config.retrieval.beam_width
    )
    if (found.items < 0).any() or not np.isfinite(found.scores).all():
        raise InputError(f"A trial search returned {found.items.tolist()} with scores {found.scores.tolist()}.")
    history = model.ids.decode(popular)
    to_json([explanation.parts for explanation in model.recommender.explain(history, history[:1])])
    model.similar.in_tree(int(popular[0]), count=1)
    for kind in model.similar.kinds:
        model.similar.near(int(popular[0]), count=1, by=kind)


def _tell_of_items(model: LoadedModel) -> None:
    """Describe every column and put its values into an answer: all of them where the type allows values that cannot."""
    catalogue = model.catalogue
    to_json([model.history_length, model.columns], bytes_mode="base64", fallback=str)
    catalogue.find("a", limit=1)
    if CATEGORY in catalogue.item_table.columns:
        count_values(catalogue.item_table[CATEGORY], most=TRIED_ITEMS)
    for column in catalogue.item_table.iter_columns():
        is_safe = column.dtype.is_numeric() or column.dtype in _SAFE_TYPES
        rows = TRIED_ITEMS if is_safe else len(column)
        for first in range(0, rows, ROWS_AT_A_TIME):
            items = np.arange(first, min(first + ROWS_AT_A_TIME, rows, len(column)))
            try:
                to_json(catalogue.rows(items, [column.name]), bytes_mode="base64", fallback=str)
            except (Exception, pl.exceptions.PanicException) as error:
                raise InputError(
                    f"The item column {column.name!r} of type {column.dtype} holds values that cannot be put into an "
                    f"answer ({error}). Leave the column out, or store it as text."
                ) from error
