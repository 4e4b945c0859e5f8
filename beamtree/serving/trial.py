"""A trial of a new model before it is served: every kind of request once, in a child process.

Files of unknown origin can exhaust memory, loop for ever, or kill the process that reads them. The child has limits of
memory and time: whatever happens to it, the model is refused and the server goes on.
"""

import json
import math
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl

from beamtree import native
from beamtree.artefact import faults_of, read_model_manifest
from beamtree.data.columns import CATEGORY
from beamtree.data.requests import Histories, Requests
from beamtree.errors import ArtefactError, InputError
from beamtree.machine import available_memory
from beamtree.serving.catalogue import count_values
from beamtree.serving.loaded_model import LoadedModel, load_model
from beamtree.serving.written_answers import json_text
from beamtree.storage import check_files

TRIAL_SECONDS = 600
TRIED_ITEMS = 5
ROWS_AT_A_TIME = 65_536
SHARE_OF_MEMORY = 0.9
"""Of the available memory, for the child: the server keeps running beside it."""
RESERVED_ADDRESSES = 2**29
"""Address space that threads and allocators reserve beyond what they use."""
SHOWN_CHARACTERS = 300
NICENESS = 5
PACKAGE = Path(__file__).resolve().parents[2]
_SAFE_TYPES = (pl.Boolean, pl.String)


def try_in_child(directory: Path, *, memory: int | None = None, seconds: float = TRIAL_SECONDS) -> str:
    """Load and try a model in a child process; its version, or ArtefactError where it is not fit to be served.

    memory: bytes of address space of the child, by default nearly all available memory; seconds: its time limit. No
    process is started for a folder whose manifest or file sizes are wrong, such as an unfinished copy.
    """
    check_files(directory, read_model_manifest(directory))
    if memory is None:
        memory = int(SHARE_OF_MEMORY * available_memory()) + RESERVED_ADDRESSES
    search_path = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": search_path, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    program = "from beamtree.serving.trial import main; main()"
    try:
        child = subprocess.run(
            [sys.executable, "-c", program, str(directory), str(memory), str(math.ceil(seconds))],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ArtefactError(
            f"{directory} was not loaded and tried within {seconds:g} s. Fit a smaller model, or use a faster disk."
        ) from None
    except OSError as error:
        raise ArtefactError(
            f"{directory} could not be tried: no process could be started ({error}). Free memory or processes, then "
            "reload it."
        ) from error
    return _verdict(directory, child)


def try_model(model: LoadedModel, *, directory: Path) -> None:
    """Make every kind of request to a model; ArtefactError where one fails.

    directory: where the model comes from, for the message.
    """
    with faults_of(directory):
        _search(model)
        _describe_items(model)


def main() -> None:
    """The child process: load and try the model of a folder within limits, and print the outcome as JSON."""
    folder, memory, seconds = sys.argv[1:]
    directory = Path(folder)
    limit_this_process(memory=int(memory), seconds=int(seconds))
    try:
        model = load_model(directory)
        try_model(model, directory=directory)
        sys.stdout.write(json.dumps({"version": model.version}))
    except ArtefactError as error:
        sys.stdout.write(json.dumps({"refused": str(error)}))


def limit_this_process(*, memory: int, seconds: int) -> None:
    """Limit memory and time, lower the priority, and be the first to be killed when the machine runs out of memory.

    memory: bytes of address space beyond what the process uses already. A sandbox may forbid any of these; the others
    still apply.
    """
    if native.is_available():
        native.set_threads(1)
    with suppress(OSError):
        os.nice(NICENESS)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    _limit(resource.RLIMIT_CPU, seconds)
    _limit(resource.RLIMIT_CORE, 0)
    with suppress(OSError):
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _limit(resource.RLIMIT_AS, held + memory)


def _limit(what: int, most: int) -> None:
    _, allowed = resource.getrlimit(what)
    bound = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
    with suppress(OSError, ValueError):
        resource.setrlimit(what, (bound, bound))


def _verdict(directory: Path, child: "subprocess.CompletedProcess[bytes]") -> str:
    if child.returncode == 0:
        said = json.loads(child.stdout)
        if "refused" in said:
            raise ArtefactError(said["refused"])
        return str(said["version"])
    how = f"exit code {child.returncode}"
    if child.returncode < 0:
        how = signal.Signals(-child.returncode).name
    last = child.stderr.decode(errors="replace").strip()[-SHOWN_CHARACTERS:]
    raise ArtefactError(
        f"{directory} cannot be served: the process that tried it ended with {how}{': ' if last else ''}{last}. Give "
        "it more memory if that is what was missing, or fit the model again."
    )


def _search(model: LoadedModel) -> None:
    """Search with an empty history and with popular items: scores must be finite, explanations must work."""
    popular = model.catalogue.most_popular[:TRIED_ITEMS]
    found = model.recommender.engine.search(
        Requests(Histories.of_lists([[], popular])), k=1, beam_width=model.artefact.config.retrieval.beam_width
    )
    if (found.items < 0).any() or not np.isfinite(found.scores).all():
        raise InputError(f"A trial search returned {found.items.tolist()} with scores {found.scores.tolist()}.")
    history = model.ids.decode(popular)
    json_text([explanation.parts for explanation in model.recommender.explain(history, history[:1])])
    model.similar.in_tree(int(popular[0]), count=1)
    for kind in model.similar.kinds:
        model.similar.near(int(popular[0]), count=1, by=kind)


def _describe_items(model: LoadedModel) -> None:
    """Describe every column and serialise its values: all of them where values of the type may fail."""
    catalogue = model.catalogue
    for column in catalogue.item_table.iter_columns():
        is_safe = column.dtype.is_numeric() or column.dtype in _SAFE_TYPES
        rows = min(TRIED_ITEMS, len(column)) if is_safe else len(column)
        try:
            for first in range(0, rows, ROWS_AT_A_TIME):
                json_text(catalogue.rows(np.arange(first, min(first + ROWS_AT_A_TIME, rows)), [column.name]))
        except (Exception, pl.exceptions.PanicException) as error:
            raise InputError(
                f"The item column {column.name!r} of type {column.dtype} holds values that cannot be put into an "
                f"answer ({error}). Leave the column out, or store it as text."
            ) from error
    if CATEGORY in catalogue.item_table.columns:
        json_text(count_values(catalogue.item_table[CATEGORY], most=TRIED_ITEMS))
    model.describe()
    json_text([model.columns, model.features])
    catalogue.find("a", limit=1)
