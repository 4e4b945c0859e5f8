from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from beamtree.artefact import Artefact, load_artefact
from tests.serving.models import save_model
from tests.serving.server import Server

StartServer = Callable[..., Server]


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 60 items 100 .. 159 and a log of three users."""
    folder = tmp_path_factory.mktemp("served")
    save_model(folder / "model", 60)
    rows = [(1, 100, 10), (1, 101, 11), (1, 102, 12), (2, 999, 10), (7, 140, 12), (7, 130, 5)]
    log = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")
    log.write_parquet(folder / "log.parquet")
    return folder


@pytest.fixture(scope="session")
def server(shared_folder: Path) -> Iterator[Server]:
    """A server that tests only ask and never change: events go to a store, admin routes do not exist."""
    running = Server(
        shared_folder / "model",
        *("--histories", str(shared_folder / "log.parquet")),
        *("--events", str(shared_folder / "events.sqlite")),
        log=shared_folder / "server.log",
    )
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.fixture(scope="session")
def artefact(shared_folder: Path) -> Artefact:
    """The model behind `server`."""
    return load_artefact(shared_folder / "model")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers of the test's own; those still running at its end are killed."""
    started: list[Server] = []

    def start_server(model: Path, *options: str, token: str = "") -> Server:
        server = Server(model, *options, log=tmp_path / f"server-{len(started)}.log", token=token)
        started.append(server)
        return server

    yield start_server
    for server in started:
        if server.process.poll() is None:
            server.kill()
