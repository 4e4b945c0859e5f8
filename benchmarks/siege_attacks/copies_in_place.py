"""A model copied over the served one in place, file by file and slowly, as `cp` over a network does.

Both models have the same arrays, so that answers must not change; their manifests, and so their versions, differ.
"""

import time
from dataclasses import replace
from pathlib import Path

from beamtree.artefact import load_artefact, save_artefact
from benchmarks.siege_harness import Figures, besieged

COPIES = 50
PIECES = 8
PAUSE_SECONDS = 0.01
REST_SECONDS, RESTS = 0.4, 5
"""After a copy it rests for longer and longer, so that the next one hits the server in every phase of its reading."""
PATIENCE_SECONDS = 60.0


def attack(model: Path, folder: Path, *, seconds: float) -> Figures:
    """Fifty copies in place under the eyes of a watcher that never rests; `seconds` plays no part.

    models_taken: how often another model was put in service; taken_in_the_end: whether the last copy is served (1).
    """
    del seconds
    artefact = load_artefact(model)
    served, *others = (folder / name for name in ("served", "one", "other"))
    for number, directory in enumerate((served, *others)):
        save_artefact(directory, replace(artefact, training={"copy": number}))
    last = load_artefact(others[(COPIES - 1) % 2]).version
    with besieged(served, "--watch-seconds", "0.01", log=folder / "log") as (server, figures):
        copies = 0
        while copies < COPIES and server.is_alive:
            copy_in_place(others[copies % 2], served)
            copies += 1
            time.sleep(REST_SECONDS * (copies % RESTS))
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        in_service = f'beamtree_model_info{{version="{last}"}}'
        while server.is_alive and not server.metric(in_service) and time.monotonic() < give_up_at:
            time.sleep(0.05)
        taken = {
            "copies": copies,
            "models_taken": server.metric("beamtree_model_changes_total") - 1 if server.is_alive else 0,
            "refused": server.metric("beamtree_reload_failures_total") if server.is_alive else 0,
            "taken_in_the_end": server.metric(in_service) if server.is_alive else 0,
        }
    return figures | taken


def copy_in_place(source: Path, target: Path) -> None:
    """Truncate each file and write it again piece by piece."""
    for path in sorted(source.iterdir()):
        content = path.read_bytes()
        with (target / path.name).open("wb") as stream:
            for piece in range(PIECES):
                stream.write(content[len(content) * piece // PIECES : len(content) * (piece + 1) // PIECES])
                stream.flush()
                time.sleep(PAUSE_SECONDS)
