"""When a model folder changes, and while it changes."""

import itertools
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from polars.exceptions import PanicException

from beamtree.artefact import MODEL_CARD, save_artefact
from beamtree.data.features import FeatureSchema
from beamtree.errors import ArtefactError
from beamtree.serving.catalogue import Catalogue
from beamtree.serving.deployment import Deployment, Failure
from beamtree.serving.loaded_model import LoadedModel, load_model
from tests.serving.models import random_artefact, save_model


class Witness:
    def __init__(self) -> None:
        self.versions: list[str] = []
        self.failures = 0
        self.looks = 0

    def model_changed(self, version: str) -> None:
        self.versions.append(version)

    def reload_failed(self) -> None:
        self.failures += 1

    def folder_watched(self) -> None:
        self.looks += 1


def read_version(directory: Path) -> LoadedModel:
    """Stands for a model: its version is the manifest's text, and the file that it names must be there."""
    name = (directory / "manifest.json").read_text()
    if not (directory / name).exists():
        raise ArtefactError(f"{directory / name} is missing")
    return cast(LoadedModel, SimpleNamespace(version=name, describe=lambda: None))


def try_version(directory: Path) -> str:
    """Stands for a trial of such a model."""
    return read_version(directory).version


def deploy(
    folder: Path,
    *,
    load: Callable[[Path], LoadedModel] = read_version,
    trial: Callable[[Path], str] = try_version,
    witness: Witness | None = None,
) -> Deployment:
    return Deployment(folder, load=load, trial=trial, witness=witness or Witness())


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
    deployment = deploy(folder, witness=witness)
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


def test_a_folder_that_is_replaced_while_it_is_tried_is_tried_again(folder: Path) -> None:
    tried: list[str] = []

    def try_slowly(directory: Path) -> str:
        tried.append((directory / "manifest.json").read_text())
        if len(tried) == 1:
            put(directory, "third")
            raise ArtefactError("the files of the second model are gone")
        return try_version(directory)

    deployment = deploy(folder, trial=try_slowly)
    put(folder, "second")
    assert deployment.reload()
    assert tried == ["second", "third"]
    assert deployment.current.version == "third"


def test_what_is_served_is_what_was_tried(folder: Path) -> None:
    """The folder changes between the trial and the loading: what was not tried is tried first."""
    tried: list[str] = []

    def try_and_be_replaced(directory: Path) -> str:
        tried.append(try_version(directory))
        if len(tried) == 1:
            put(directory, "third")
        return tried[-1]

    deployment = deploy(folder, trial=try_and_be_replaced)
    put(folder, "second")
    assert deployment.reload()
    assert tried == ["second", "third"]
    assert deployment.current.version == "third"


def test_a_folder_that_never_holds_still_is_refused(folder: Path) -> None:
    count = itertools.count()

    def try_and_be_replaced(directory: Path) -> str:
        version = try_version(directory)
        put(directory, f"model-{next(count)}")
        return version

    deployment = deploy(folder, trial=try_and_be_replaced)
    put(folder, "second")
    with pytest.raises(ArtefactError, match="the model folder was changed 3 times while it was read"):
        deployment.reload()
    assert deployment.current.version == "first"


def test_a_model_that_is_refused_is_not_even_loaded(folder: Path) -> None:
    loaded: list[str] = []

    def load(directory: Path) -> LoadedModel:
        loaded.append((directory / "manifest.json").read_text())
        return read_version(directory)

    def refuse(directory: Path) -> str:
        raise ArtefactError(f"{directory} killed the process that tried it")

    deployment = deploy(folder, load=load, trial=refuse)
    put(folder, "second")
    with pytest.raises(ArtefactError, match=r"^the model folder killed"):
        deployment.reload()
    assert loaded == ["first"]


class Looks:
    """Lets the watcher look so many times, with another model each time: model-2, model-1, model-0."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.left = folder, count

    def wait(self, _: float) -> bool:
        self.left -= 1
        if self.left >= 0:
            put(self.folder, f"model-{self.left}")
        return self.left < 0


@pytest.mark.parametrize("failure", [ZeroDivisionError("by 0"), PanicException("by 0"), MemoryError("by 0")])
@pytest.mark.parametrize("where", ["load", "trial"])
def test_a_failure_of_any_kind_is_a_refused_model_and_the_watching_goes_on(
    folder: Path, failure: BaseException, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    witness = Witness()
    seen: list[Failure | None] = []

    def fail_on_the_second(directory: Path) -> LoadedModel:
        if (directory / "manifest.json").read_text() == "model-1":
            raise failure
        if deployments:
            seen.append(deployments[0].last_failure)
        return read_version(directory)

    deployments: list[Deployment] = []
    if where == "load":
        deployments = [deploy(folder, load=fail_on_the_second, witness=witness)]
    else:
        deployments = [deploy(folder, trial=lambda at: fail_on_the_second(at).version, witness=witness)]
    deployments[0].watch(cast(Any, Looks(folder, 3)), seconds=0.0)
    assert deployments[0].current.version == "model-0"
    assert (witness.failures, witness.looks) == (1, 3)
    assert [str(one.message) for one in seen if one] == [f"{type(failure).__name__}: by 0"]
    assert "model refused" in caplog.text


def test_a_reload_by_hand_that_fails_in_any_way_is_an_artefact_error(folder: Path) -> None:
    def panic(_: Path) -> str:
        raise PanicException("index out of bounds")

    deployment = deploy(folder, trial=panic)
    with pytest.raises(ArtefactError, match="PanicException: index out of bounds"):
        deployment.reload()
    assert deployment.last_failure is not None


def test_a_watcher_survives_what_is_not_even_a_refusal(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Witness):
        def reload_failed(self) -> None:
            raise PanicException("in the metrics")

    def refuse(_: Path) -> str:
        raise ArtefactError("no")

    witness = Broken()
    deploy(folder, trial=refuse, witness=witness).watch(cast(Any, Looks(folder, 2)), seconds=0.0)
    assert witness.looks == 2
    assert "watching the model folder failed" in caplog.text


def test_it_shows_whether_the_folder_holds_what_is_served(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_model(folder, 30, seed=1)
    deployment = Deployment(folder, load=load_model, trial=lambda at: load_model(at).version, witness=Witness())
    assert not deployment.differs_from_folder()
    (folder / "notes.txt").write_text("a file of no concern")
    assert not deployment.differs_from_folder()
    save_model(folder, 30, seed=2)
    assert deployment.differs_from_folder()
    deployment.reload()
    assert not deployment.differs_from_folder()
    deployment.rollback()
    assert deployment.differs_from_folder()
    deployment.reload()
    [weights] = folder.glob("weights-*")
    weights.write_bytes(b"x" * weights.stat().st_size)
    with pytest.raises(ArtefactError, match="is damaged"):
        deployment.reload()
    assert deployment.differs_from_folder()
    (folder / "manifest.json").unlink()
    assert deployment.differs_from_folder()
    os.mkfifo(folder / "manifest.json")
    deployment.reload_if_changed()
    assert deployment.last_failure is not None
    assert "a pipe" in deployment.last_failure.message


def test_no_request_waits_for_the_description_of_a_new_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(tmp_path, 30, seed=1)
    deployment = Deployment(tmp_path, load=load_model, trial=lambda at: load_model(at).version, witness=Witness())
    save_model(tmp_path, 30, seed=2)
    deployment.reload()
    monkeypatch.setattr(Catalogue, "describe_columns", None)
    monkeypatch.setattr(FeatureSchema, "infer", None)
    assert {"name": "category", "kind": "category", "size": None} in deployment.current.features["items"]
    assert len(deployment.current.columns) == 6


def test_a_rollback_does_not_wait_for_a_model_that_is_being_read(folder: Path) -> None:
    reading, finish = threading.Event(), threading.Event()

    def try_for_long(directory: Path) -> str:
        if (directory / "manifest.json").read_text() == "third":
            reading.set()
            finish.wait(60)
        return try_version(directory)

    deployment = deploy(folder, trial=try_for_long)
    put(folder, "second")
    deployment.reload()
    put(folder, "third")
    reload = threading.Thread(target=deployment.reload)
    reload.start()
    assert reading.wait(60)
    deployment.rollback()
    assert deployment.current.version == "first"
    finish.set()
    reload.join()
    assert deployment.current.version == "third"


def test_a_rollback_holds_until_the_folder_changes_again(folder: Path) -> None:
    deployment = deploy(folder)
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
    with pytest.raises(ArtefactError, match=r"does not fit together: .* does not know: bias\. Load it in Python"):
        load_model(tmp_path)


def test_an_edit_of_the_model_card_changes_no_model(folder: Path) -> None:
    tried: list[Path] = []

    def trial(directory: Path) -> str:
        tried.append(directory)
        return try_version(directory)

    deployment = deploy(folder, trial=trial)
    (folder / MODEL_CARD).write_text("written after the manifest")
    deployment.reload_if_changed()
    (folder / MODEL_CARD).write_text("and edited by somebody")
    deployment.reload_if_changed()
    assert tried == []
    put(folder, "second")
    deployment.reload_if_changed()
    assert tried == [folder]
