"""Constants inside the file and beside it, and what a failed write leaves behind."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from beamtree.artefact import Artefact
from beamtree.errors import ArtefactError, InputError
from beamtree.export.onnx import export_onnx
from tests.export.exported import random_artefact, run
from tests.small import model_settings, random_histories, random_tree

HISTORIES = random_histories(10, length=5, num_items=60, generator=np.random.default_rng(0))


def artefact(seed: int = 0) -> Artefact:
    return random_artefact(model_settings(), random_tree(60, branching=2, seed=0), seed=seed, text_ids=True)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_constants_above_the_limit_go_beside(tmp_path: Path) -> None:
    inside = export_onnx(artefact(), tmp_path / "inside.onnx", k=5)
    beside = export_onnx(artefact(), tmp_path / "beside.onnx", k=5, embed_limit=1_000)
    assert inside.constants is None
    assert beside.constants is not None
    assert names(tmp_path) == {"inside.onnx", "beside.onnx", beside.constants.name}
    assert beside.size == beside.model.stat().st_size + beside.constants.stat().st_size
    table = artefact().weights["attention/node_table"]
    assert table.tobytes() not in beside.model.read_bytes()
    assert table.tobytes() in beside.constants.read_bytes()
    onnx.checker.check_model(str(beside.model), full_check=True)
    expected, given = run(inside.model, HISTORIES), run(beside.model, HISTORIES)
    for name in expected:
        np.testing.assert_array_equal(given[name], expected[name])


def test_a_moved_pair_still_works(tmp_path: Path) -> None:
    files = export_onnx(artefact(), tmp_path / "model.onnx", k=5, embed_limit=1_000)
    expected = run(files.model, HISTORIES)["items"]
    (tmp_path / "elsewhere").mkdir()
    for path in (files.model, files.constants):
        assert path is not None
        path.rename(tmp_path / "elsewhere" / path.name)
    np.testing.assert_array_equal(run(tmp_path / "elsewhere" / "model.onnx", HISTORIES)["items"], expected)


def test_a_new_model_takes_the_old_constants_away_and_leaves_other_files(tmp_path: Path) -> None:
    (tmp_path / "model-notes.data").write_text("mine")
    first = export_onnx(artefact(1), tmp_path / "model.onnx", k=5, embed_limit=1_000).constants
    second = export_onnx(artefact(2), tmp_path / "model.onnx", k=5, embed_limit=1_000).constants
    assert first is not None
    assert second is not None
    assert names(tmp_path) == {"model.onnx", "model-notes.data", second.name}
    export_onnx(artefact(2), tmp_path / "model.onnx", k=5)
    assert names(tmp_path) == {"model.onnx", "model-notes.data"}


def test_a_failed_write_leaves_the_old_model_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_onnx(artefact(1), tmp_path / "model.onnx", k=5, embed_limit=1_000)
    expected = run(tmp_path / "model.onnx", HISTORIES)["items"]

    def no_room(_: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(onnx.checker, "check_model", no_room)
    with pytest.raises(ArtefactError, match="No space left on device"):
        export_onnx(artefact(2), tmp_path / "model.onnx", k=5, embed_limit=1_000)
    np.testing.assert_array_equal(run(tmp_path / "model.onnx", HISTORIES)["items"], expected)
    assert not [name for name in names(tmp_path) if name.endswith(".tmp")]


def test_raw_ids_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without raw ids"):
        export_onnx(artefact(), tmp_path / "model.onnx", k=5, embed_limit=100)
    export_onnx(artefact(), tmp_path / "model.onnx", k=5, embed_limit=100, raw_ids=False)
    assert run(tmp_path / "model.onnx", HISTORIES)["items"].shape == (10, 5)
