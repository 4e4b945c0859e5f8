"""Training SASRec as an estimator: what it learns, what is kept, and what decides it."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from beamtree.config import EstimatorSettings
from beamtree.data.split import Split, split_none, split_users
from beamtree.errors import DivergedError, InterruptedTraining
from beamtree.model.next_item import NextItemModel
from beamtree.training import estimate as module
from beamtree.training.estimate import EstimatorRun, TrainedEstimator, load_or_train_estimator
from beamtree.training.estimator_store import EstimatorStore, estimator_key
from beamtree.training.events import Event, Validated
from beamtree.training.horizon import TargetHorizon
from tests.small import encoder_settings, sequences_of

RING = sequences_of([[(start + step) % 6 for step in range(9)] for start in range(6)])


def histories(*rows: list[int]) -> npt.NDArray[np.int32]:
    return np.array(rows, dtype=np.int32)


def train(
    directory: Path | None, *, stop_after: int | None = None, **changes: Any
) -> tuple[TrainedEstimator[NextItemModel], list[Validated]]:
    """Trained on the ring, where everyone has every item; stopped after so many steps of this call, if told to.

    With the validations of this call.
    """
    given: dict[str, Any] = {
        "width": 8,
        "layers": 1,
        "epochs": 80,
        "batch_positions": 16,
        "dropout": 0.1,
        "validations": 40,
        "decay": "constant",
    }
    settings = encoder_settings(**(given | {"learning_rate": 0.02, "embedding_init": "random"} | changes))
    split, steps = split_none(RING), itertools.count(1)
    key = estimator_key(settings, split=split, validation_users=split.validation, data="ring")
    events: list[Event] = []
    run = EstimatorRun(
        settings=settings,
        horizon=TargetHorizon(2),
        seed=3,
        validate=lambda estimator: {"f@20": float(estimator.scores(histories([0, 1, 2, 3]))[0, 4])},
        listen=events.append,
        should_stop=lambda: next(steps) == stop_after,
    )
    store = None if directory is None else EstimatorStore.at(directory, key)
    trained = load_or_train_estimator(store, RING, split, num_items=6, history_length=4, run=run)
    return trained, [event for event in events if isinstance(event, Validated)]


def same_scores(left: TrainedEstimator[NextItemModel], right: TrainedEstimator[NextItemModel]) -> bool:
    asked = histories([0, 1, 2, 3], [-1, -1, 4, 5], [3, 2, 1, 0])
    return left.estimator.scores(asked).tobytes() == right.estimator.scores(asked).tobytes()


def test_it_starts_from_who_interacted_with_what() -> None:
    """Users of 0, 1 and 2 never meet those of 3, 4 and 5; a training that moves nothing shows where it began."""
    apart = sequences_of([[0, 1, 2], [1, 2, 0], [3, 4, 5], [4, 5, 3]])
    settings = encoder_settings(width=8, layers=1, epochs=1, learning_rate=1e-9)
    run = EstimatorRun(settings=settings, horizon=TargetHorizon(), seed=3, validate=None, listen=lambda _: None)
    trained = load_or_train_estimator(None, apart, split_none(apart), num_items=6, history_length=4, run=run)
    assert isinstance(trained.estimator, NextItemModel)
    alike = torch.corrcoef(trained.estimator.items.detach()) > 0.5
    assert torch.equal(alike, torch.block_diag(torch.ones(3, 3), torch.ones(3, 3)).bool())


def test_it_learns_what_comes_next_and_is_kept(tmp_path: Path) -> None:
    trained, events = train(tmp_path, patience=40)
    best = trained.estimator.scores(histories([2, 3, 4, 5], [-1, -1, 0, 1])).argsort(axis=1)[:, -2:]
    assert np.sort(best).tolist() == [[0, 1], [2, 3]], "targets come from the next two"
    assert len(events) == 40
    again, no_events = train(tmp_path, patience=40)
    assert no_events == []
    assert (trained.is_reused, again.is_reused) == (False, True)
    assert again.seconds == trained.seconds
    assert same_scores(again, trained)
    _, other_events = train(tmp_path, patience=40, epochs=2, validations=2)
    assert len(other_events) == 2, "other settings are another estimator"


def test_a_loss_that_is_lost_is_never_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NextItemModel, "loss", lambda self, *_, **__: self.items.sum() * float("nan"))
    with pytest.raises(DivergedError, match=r"Lower estimator\.learning_rate \(now 0\.02\)"):
        train(tmp_path)
    assert not list(tmp_path.glob("encoder-*/*"))


@pytest.mark.parametrize("stops", [(1,), (5, 7, 1), (12, 4)])
def test_stopped_at_any_step_it_goes_on_to_the_same_bytes(tmp_path: Path, stops: tuple[int, ...]) -> None:
    """Twelve windows in steps of four: three steps in an epoch."""
    changes = {"epochs": 6, "validations": 6, "patience": 6}
    whole, events = train(None, **changes)
    for stop_after in stops:
        with pytest.raises(InterruptedTraining, match=r"after step \d+ of 18 of the estimator; the check.*--resume"):
            train(tmp_path, **changes, stop_after=stop_after)
    resumed, rest = train(tmp_path, **changes)
    assert same_scores(resumed, whole)
    assert rest == events[len(events) - len(rest) :]
    assert len(rest) < len(events) or stops == (1,)
    assert [path.name for path in tmp_path.glob("*unfinished*")] == []


@pytest.mark.parametrize("negatives", ["all", 3])
def test_batches_divided_between_threads_give_the_same_bytes_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, negatives: str | int
) -> None:
    changes: dict[str, Any] = {"epochs": 6, "validations": 6, "patience": 6, "negatives": negatives}
    undivided, _ = train(None, **changes)
    monkeypatch.setattr(module, "POSITIONS_OF_A_PART", 4)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        whole, _ = train(None, **changes)
        with pytest.raises(InterruptedTraining):
            train(tmp_path, **changes, stop_after=7)
        resumed, _ = train(tmp_path, **changes)
    finally:
        torch.set_num_threads(threads)
    assert same_scores(resumed, whole)
    assert not same_scores(undivided, whole), "each part draws for itself"


def test_what_decides_an_estimator_is_in_its_key() -> None:
    base = EstimatorSettings()
    split = split_users(sequences_of([list(range(20))] * 30), seed=1)
    other_split = split_users(sequences_of([list(range(20))] * 30), seed=2)

    def key(settings: EstimatorSettings = base, split: Split = split, **rest: Any) -> str:
        given = {"data": "d", "seed": 1, "protocol": "clean", "history_length": 5, "horizon": [1, 1]}
        return estimator_key(settings, split=split, validation_users=split.validation, **(given | rest))

    keys = {
        key(),
        key(EstimatorSettings(width=32)),
        key(split=other_split),
        key(split=replace(split, first_target=2)),
        key(data="e"),
        key(seed=2),
        key(protocol="paper"),
        key(horizon=[2, 1]),
    }
    assert len(keys) == 8
