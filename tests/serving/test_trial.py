"""A new model is tried where it can do no harm: whatever it does there is a refusal with a reason."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import Artefact, load_artefact, save_artefact
from beamtree.errors import ArtefactError
from beamtree.retrieval.recommender import Recommender
from beamtree.serving.loaded_model import assemble, load_model
from beamtree.serving.trial import try_in_child, try_model
from tests.serving.models import random_artefact, save_model

MEGABYTE = 2**20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path / "model", 30, parts=("attention", "memory", "tower"))
    return tmp_path / "model"


def with_column(name: str, values: pl.Series) -> Artefact:
    artefact = random_artefact(30)
    return replace(artefact, item_table=artefact.item_table.with_columns(values.alias(name)))


def test_a_model_that_takes_too_much_memory_is_refused(folder: Path) -> None:
    """A text of 12 MB for each item: 360 MB in memory, packed into less than one."""
    assert try_in_child(folder, memory=320 * MEGABYTE) == load_artefact(folder).version
    table = pl.DataFrame({"item_id": range(30), "story": [str(item) + "x" * 12 * MEGABYTE for item in range(30)]})
    save_artefact(folder, replace(random_artefact(30), item_table=table))
    assert sum(path.stat().st_size for path in folder.iterdir()) < MEGABYTE
    with pytest.raises(ArtefactError, match=r"model (cannot be served: the process that tried it|does not fit)"):
        try_in_child(folder, memory=320 * MEGABYTE)


def test_a_model_that_takes_too_long_is_refused(folder: Path) -> None:
    with pytest.raises(ArtefactError, match=r"model was not loaded and tried within 0\.001 s"):
        try_in_child(folder, seconds=0.001)


def test_half_a_copy_is_refused_without_a_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    [weights] = folder.glob("weights-*")
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ArtefactError, match="is damaged"):
        try_in_child(folder)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with SIGSEGV"),
        ("import sys; sys.exit('memory allocation failed')", "ended with exit code 1: memory allocation failed"),
    ],
    ids=["killed", "exit"],
)
def test_a_child_that_ends_otherwise_is_a_refusal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    run = subprocess.run

    def run_program(command: list[str], **options: Any) -> "subprocess.CompletedProcess[bytes]":
        return run([command[0], "-c", program], **options)

    monkeypatch.setattr(subprocess, "run", run_program)
    with pytest.raises(ArtefactError, match=message):
        try_in_child(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            pl.Series(29 * [0] + [2**31 - 1], dtype=pl.Int32).cast(pl.Date),
            "'odd' of type Date holds values that cannot",
        ),
        (pl.Series(29 * [0] + [2**62], dtype=pl.Int64).cast(pl.Datetime("us")), "'odd' of type Datetime"),
    ],
    ids=["date", "datetime"],
)
def test_a_column_whose_values_cannot_be_told_is_named(values: pl.Series, message: str) -> None:
    """Polars reads such dates, and fails as soon as they are to be shown: no request would get an answer."""
    with pytest.raises(ArtefactError, match=message):
        try_model(assemble(with_column("odd", values)), directory=Path("folder"))


@pytest.mark.parametrize(
    "values",
    [
        pl.Series(30 * [b"\xff"]),
        pl.Series(30 * [[1, None]]),
        pl.Series(30 * [{"a": 1}]),
        pl.Series(30 * [None]),
        pl.Series(30 * [float("nan")]),
        pl.Series(30 * ["a"], dtype=pl.Categorical),
        pl.Series(30 * [5], dtype=pl.Duration),
        pl.Series(30 * [5], dtype=pl.Decimal(10, 2)),
    ],
    ids=lambda values: str(values.dtype),
)
def test_columns_that_can_be_told_pass(values: pl.Series) -> None:
    try_model(assemble(with_column("odd", values)), directory=Path("folder"))


def test_a_category_of_lists_is_tried_as_requests_for_the_tree_read_it() -> None:
    model = assemble(with_column("category", pl.Series(30 * [[1, 2]])))
    try_model(model, directory=Path("folder"))


def spoilt(directory: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    artefact = random_artefact(30, parts=("attention", "memory", "tower"))
    weights = dict(artefact.weights)
    change(weights)
    save_artefact(directory, replace(artefact, weights=weights))
    return directory


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("attention/mlp.1.weight"), r"the array mlp\.1\.weight of shape \(6, 8\), got none"),
        (lambda arrays: arrays.pop("memory/gates"), "counted memory is incomplete: 'gates'"),
        (lambda arrays: arrays.pop("tower/weight"), r"the array weight of shape \(\), got none"),
        (lambda arrays: arrays.update({"attention/mlp.1.weight": np.zeros((3, 3), np.float32)}), r"got \(3, 3\)"),
        (
            lambda arrays: arrays.update({"attention/mlp.1.weight": arrays["attention/mlp.1.weight"].reshape(-1)}),
            r"mlp\.1\.weight of shape \(6, 8\), got \(48,\)",
        ),
        (
            lambda arrays: arrays.update({"attention/node_table": arrays["attention/node_table"].reshape(-1)}),
            "node_table of shape",
        ),
        (lambda arrays: arrays.update({"attention/mlp.3.bias": np.array([np.nan], np.float32)}), "not finite"),
        (lambda arrays: arrays.update({"memory/popularity": np.zeros(29, np.float32)}), "one for every item"),
        (lambda arrays: arrays.clear(), "does not fit together"),
    ],
    ids=["network", "gates", "tower", "shape", "flattened", "flattened table", "not finite", "popularity", "nothing"],
)
def test_weights_that_do_not_fit_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    """By the server, and by Python and the command line alike."""
    directory = spoilt(tmp_path, change)
    for load in (load_model, Recommender.load):
        with pytest.raises(ArtefactError, match=message):
            load(directory)


def test_a_search_without_numbers_is_refused() -> None:
    artefact = random_artefact(30)
    huge = {name: np.full_like(array, 3e38) for name, array in artefact.weights.items()}
    with pytest.raises(ArtefactError, match="A trial search returned"):
        try_model(assemble(replace(artefact, weights=huge)), directory=Path("folder"))
