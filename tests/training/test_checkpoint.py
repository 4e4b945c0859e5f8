"""One format for everything that is kept between two starts: what comes back, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beamtree.errors import ArtefactError
from beamtree.storage import MANIFEST, write_bundle
from beamtree.training.checkpoint import (
    Checkpoint,
    Identity,
    forget_checkpoint,
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
)

IDENTITY = Identity("log", settings={"training": {"seed": 1, "epochs": 2.0}})
KEPT = Checkpoint(
    {"step": 3, "scores": [0.5, None]},
    {
        "model": {"attention/table": np.arange(6, dtype=np.float32).reshape(2, 3)},
        "best": {"attention/table": np.zeros((2, 3), dtype=np.float32), "count": np.array(7)},
        "nothing": {},
    },
)


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path, kind="toy", identity=IDENTITY) is None
    save_checkpoint(tmp_path, KEPT, kind="toy", identity=IDENTITY)
    found = load_checkpoint(tmp_path, kind="toy", identity=IDENTITY)
    assert found is not None
    assert found.progress == {"step": 3, "scores": [0.5, None]}
    np.testing.assert_array_equal(found.group("model")["attention/table"], [[0, 1, 2], [3, 4, 5]])
    assert found.group("model")["attention/table"].dtype == np.float32
    assert found.group("best").keys() == {"attention/table", "count"}
    assert found.group("nothing") == {}
    found.group("model")["attention/table"][:] = 9.0  # not the memory-mapped file: it can be learned further


def test_what_is_forgotten_is_not_found(tmp_path: Path) -> None:
    forget_checkpoint(tmp_path)
    save_checkpoint(tmp_path, KEPT, kind="toy", identity=IDENTITY)
    assert has_checkpoint(tmp_path)
    forget_checkpoint(tmp_path)
    assert not has_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("kind", "identity", "said"),
    [
        ("rounds", IDENTITY, r"holds 'beamtree checkpoint: toy', format 4; expected 'beamtree checkpoint: rounds'"),
        (
            "toy",
            Identity("log", IDENTITY.settings, features="x"),
            r"other features of users or contexts\. .* --restart",
        ),
        ("toy", Identity("other", IDENTITY.settings), r"another log\. Give the same log, or start again: --restart"),
        (
            "toy",
            Identity("log", {"training": {"seed": 2, "rounds": 3}}),
            r"training\.seed: 1 then, 2 now; training\.rounds: None then, 3 now; training\.epochs: 2\.0 then, None now"
            r".*Give the same settings, or start again: --restart",
        ),
    ],
)
def test_what_belongs_to_another_run_is_refused(tmp_path: Path, kind: str, identity: Identity, said: str) -> None:
    save_checkpoint(tmp_path, KEPT, kind="toy", identity=IDENTITY)
    with pytest.raises(ArtefactError, match=said):
        load_checkpoint(tmp_path, kind=kind, identity=identity)


@pytest.mark.parametrize(
    "manifest", [{"kind": "beamtree model"}, {"kind": "beamtree checkpoint: toy", "format_version": 2}]
)
def test_what_is_no_checkpoint_of_this_version_is_refused(tmp_path: Path, manifest: dict[str, Any]) -> None:
    write_bundle(tmp_path, manifest, files={})
    with pytest.raises(ArtefactError, match=r"expected 'beamtree checkpoint: toy', format 4\. Start again: --restart"):
        load_checkpoint(tmp_path, kind="toy", identity=IDENTITY)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, KEPT, kind="toy", identity=IDENTITY)
    (state,) = tmp_path.glob("state-*.safetensors")
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(content)
    with pytest.raises(ArtefactError, match="is damaged"):
        load_checkpoint(tmp_path, kind="toy", identity=IDENTITY)


@pytest.mark.parametrize("entry", ["identity", "progress"])
def test_an_altered_manifest_is_refused(tmp_path: Path, entry: str) -> None:
    save_checkpoint(tmp_path, KEPT, kind="toy", identity=IDENTITY)
    path = tmp_path / MANIFEST
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, entry: {}}))
    with pytest.raises(ArtefactError, match=r"damaged: its checksum differs\. Restore it, or start again"):
        load_checkpoint(tmp_path, kind="toy", identity=IDENTITY)
