"""Learning on a device of its own: nothing of it meets what stays on the host. Shown on a CPU, with the same code."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from beamtree.config import Config
from beamtree.data.split import split_none
from beamtree.errors import InputError
from beamtree.fitting.computation import build_learner, learning_device
from beamtree.model.proposal import Proposal
from beamtree.model.score import Score, build_score
from beamtree.training.candidate_scores import torch_candidate_scores
from beamtree.training.estimate import EstimatorRun, load_or_train_estimator
from beamtree.training.estimator_store import EstimatorStore
from beamtree.training.horizon import TargetHorizon
from beamtree.training.instances import Batch
from beamtree.training.learner import TorchLearner
from beamtree.training.relearn import Stage
from beamtree.training.rows import RowAdam
from tests.small import assert_same_bytes, encoder_settings, nested, random_histories, random_tree
from tests.training.runs import RING, batch_from, take_step
from tests.training.two_places import HostTensor, two_places

TREE = random_tree(40, branching=3, seed=1, num_leaves=44)
HISTORIES = random_histories(6, length=5, num_items=40, generator=np.random.default_rng(0))
TARGETS = np.array([0, 3, 3, 10, 7, 5], dtype=np.int32)


def batch() -> Batch:
    weights = np.linspace(0, 1, 6 * TREE.height, dtype=np.float32).reshape(6, -1)
    return batch_from(HISTORIES, TARGETS, weights)


def learner_of(monkeypatch: pytest.MonkeyPatch, **changes: dict[str, Any]) -> TorchLearner:
    """In torch, as on a device that the kernels do not know."""
    monkeypatch.setattr("beamtree.fitting.computation.kernels_attention", lambda _: None)
    model = {"windows": [3, 2], "layers": [8, 6, 4], "dropout": 0.1, "normalisation": "batch"}
    training = {"negatives": 4} | changes.get("training", {})
    config = Config.resolve(nested({"model": model | changes.get("model", {}), "training": training}))
    learner = build_learner(build_score(config, TREE, seed=0), config=config)
    assert isinstance(learner, TorchLearner)
    return learner


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"method": "dtr-u"}},
        {"training": {"method": "dtr-t"}},
        {"training": {"method": "dtr-t", "optimiser": "adam"}},
        {"model": {"normalisation": "layer", "history_table": "shared"}},
        {"model": {"normalisation": "none"}},
    ],
)
def test_a_step_of_learning_stays_on_the_device(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, apart, again = (learner_of(monkeypatch, **changes) for _ in range(3))
    losses = [take_step(plain, batch(), step=step, learning_rate=0.01) for step in range(3)]
    with two_places(monkeypatch):
        assert [take_step(apart, batch(), step=step, learning_rate=0.01) for step in range(2)] == losses[:2]
        again.load_model_arrays(apart.model_arrays())
        again.restore_optimiser(apart.optimiser_arrays())
        assert take_step(again, batch(), step=2, learning_rate=0.01) == losses[2]
    assert_same_bytes(again.model_arrays(), plain.model_arrays())


def test_scores_for_relearning_come_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    score: Score = learner_of(monkeypatch).score
    found = [np.zeros((40, 3)), np.zeros((40, 3))]
    arguments = (batch(), np.zeros(40, dtype=np.int64), Stage(0, 1))
    torch_candidate_scores(score)(found[0], *arguments)
    with two_places(monkeypatch):
        torch_candidate_scores(score)(found[1], *arguments)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("negatives", ["all", 3])
def test_the_estimator_learns_on_the_device(
    negatives: Literal["all"] | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = encoder_settings(width=8, epochs=3, batch_positions=16, negatives=negatives)
    asked = np.array([[0, 1, 2, 3], [-1, -1, 4, 5]], dtype=np.int32)
    drawn = np.array([1, 4, 6])
    monkeypatch.setattr(
        Proposal,
        "draw",
        lambda *_, **__: (torch.from_numpy(drawn), torch.from_numpy(np.full(3, 2.0, dtype=np.float64))),
    )
    monkeypatch.setattr("beamtree.training.module_learner._row_adam_of", lambda _: RowAdam)  # as for a table elsewhere
    run = EstimatorRun(settings=settings, horizon=TargetHorizon(), seed=3, validate=None, listen=lambda _: None)

    def scores(folder: Path) -> np.ndarray:
        store = EstimatorStore.at(folder, "key")
        trained = load_or_train_estimator(store, RING, split_none(RING), num_items=8, history_length=4, run=run)
        return trained.estimator.scores(asked)

    plain = scores(tmp_path / "plain")
    with two_places(monkeypatch, unnamed="cpu"):  # it is built on the host, and taken over as a whole
        assert scores(tmp_path / "apart").tobytes() == plain.tobytes()
        assert scores(tmp_path / "apart").tobytes() == plain.tobytes(), "as it was kept"


def test_the_two_places_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    on_device = torch.ones(2)
    with two_places(monkeypatch):
        from_host = torch.from_numpy(np.ones(2, dtype=np.float32))
        assert isinstance(on_device.cpu(), HostTensor)
        assert (on_device + from_host.to("cpu")).sum() == 4
        for mixed in (
            lambda: on_device + from_host,
            lambda: on_device[torch.from_numpy(np.zeros(1, dtype=np.int64))],
            lambda: on_device.numpy(),
        ):
            with pytest.raises(AssertionError):
                mixed()
        with pytest.raises(RuntimeError, match="Tensor on device meta is not on the expected device"):
            on_device + torch.ones(2)


def test_a_gpu_is_taken_where_there_is_one_and_missed_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    on = {name: Config.preset("small", training={"device": name}) for name in ("auto", "cpu", "cuda")}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [learning_device(on[name]).type for name in ("auto", "cpu")] == ["cpu", "cpu"]
    with pytest.raises(InputError, match="torch finds no GPU here"):
        learning_device(on["cuda"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [learning_device(config).type for config in on.values()] == ["cuda", "cpu", "cuda"]
