"""When a model folder changes, and while it changes."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from beamtree.artefact import save_artefact
from beamtree.errors import ArtefactError
from beamtree.serving.deployment import Deployment
from beamtree.serving.loaded_model import LoadedModel, load_model
from tests.serving.models import random_artefact


class Witness:
    def __init__(self) -> None:
        self.versions: list[str] = []
        self.failures = 0

    def model_changed(self, version: str) -> None:
        self.versions.append(version)

    def reload_failed(self) -> None:
        self.failures += 1


def read_version(directory: Path) -> LoadedModel:
    """Stands for a model: its version is the manifest's text, and the file that it names must be there."""
    name = (directory / "manifest.json").read_text()
    if not (directory / name).exists():
        raise ArtefactError(f"{directory / name} is missing")
    return cast(LoadedModel, SimpleNamespace(version=name))


def put(directory: Path, name: str, *, with_file: bool = True) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "manifest.json").write_text(name)
    if with_file:
        (directory / name).touch()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path / "model", "first")
    return tmp_path / "model"


def test_a_folder_that_arrives_piece_by_piece_is_read_when_it_is_whole(folder: Path) -> None:
    witness = Witness()
    deployment = Deployment(folder, load=read_version, witness=witness)
    deployment.reload_if_changed()
    assert witness.versions == ["first"]
    put(folder, "second", with_file=False)
    for _ in range(3):
        deployment.reload_if_changed()
    assert (deployment.current.version, witness.failures) == ("first", 1)
    assert "the model folder/second is missing" in str(deployment.last_failure)
    put(folder, "second")
    deployment.reload_if_changed()
    assert deployment.current.version == "second"
    assert deployment.last_failure is None
    assert witness.versions == ["first", "second"]


def test_a_folder_that_is_replaced_while_it_is_read_is_read_again(folder: Path) -> None:
    attempts: list[str] = []

    def load_slowly(directory: Path) -> LoadedModel:
        attempts.append((directory / "manifest.json").read_text())
        if len(attempts) == 2:
            put(directory, "third")
            raise ArtefactError("the files of the second model are gone")
        return read_version(directory)

    deployment = Deployment(folder, load=load_slowly, witness=Witness())
    put(folder, "second")
    assert deployment.reload()
    assert attempts == ["first", "second", "third"]
    assert deployment.current.version == "third"


def test_a_failure_that_nobody_foresaw_does_not_end_the_watching(folder: Path, caplog: Any) -> None:
    class TwoLooks:
        """Lets the watcher look twice."""

        left = 2

        def wait(self, _: float) -> bool:
            self.left -= 1
            put(folder, f"model-{self.left}")
            return self.left < 0

    def load(directory: Path) -> LoadedModel:
        if (directory / "manifest.json").read_text() == "model-1":
            raise ZeroDivisionError
        return read_version(directory)

    deployment = Deployment(folder, load=load, witness=Witness())
    deployment.watch(cast(Any, TwoLooks()), seconds=0.0)
    assert deployment.current.version == "model-0"
    assert "watching the model folder failed" in caplog.text


def test_a_rollback_holds_until_the_folder_changes_again(folder: Path) -> None:
    deployment = Deployment(folder, load=read_version, witness=Witness())
    put(folder, "second")
    deployment.reload_if_changed()
    deployment.rollback()
    for _ in range(3):
        deployment.reload_if_changed()
    assert deployment.current.version == "first"
    put(folder, "third")
    deployment.reload_if_changed()
    assert deployment.current.version == "third"


def test_a_model_with_a_part_from_outside_is_refused_with_what_to_do_about_it(tmp_path: Path) -> None:
    artefact = random_artefact(60)
    save_artefact(tmp_path, replace(artefact, weights={**artefact.weights, "bias/table": np.zeros((3, 1))}))
    with pytest.raises(ArtefactError, match=r"cannot be served\. .* does not know: bias\. Load it in Python"):
        load_model(tmp_path)
