"""SASRec: what it may see, what padding does, and that learning it is a function of the seed."""

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
from beamtree.model import estimator as module
from beamtree.model.estimator import PopularityEstimator, SasRec
from beamtree.model.proposal import Proposal
from beamtree.model.softmax_loss import sampled_softmax_loss
from beamtree.training.estimate import EstimatorRun, TrainedEstimator, TrainingWindows, load_or_train_estimator
from beamtree.training.estimator_store import EstimatorStore, estimator_key
from beamtree.training.horizon import TargetHorizon
from tests.small import sequences_of

RING = sequences_of([[(start + step) % 6 for step in range(9)] for start in range(6)])


UNEVEN = Proposal(np.array([0.4, 0.1, 0.1, 0.2, 0.1, 0.1]))


def estimator(**changes: Any) -> SasRec:
    settings = EstimatorSettings.model_validate({"width": 8, "layers": 2, "heads": 2, "dropout": 0.0} | changes)
    model = SasRec(settings, num_items=6, history_length=4, generator=torch.Generator().manual_seed(1))
    return model.eval()


def histories(*rows: list[int]) -> npt.NDArray[np.int32]:
    return np.array(rows, dtype=np.int32)


def test_a_position_sees_itself_and_what_came_before() -> None:
    model = estimator()
    base, changed = torch.tensor([[0, 1, 2, 3]]), torch.tensor([[0, 1, 2, 5]])
    before, after = model.encode(base), model.encode(changed)
    torch.testing.assert_close(before[:, :3], after[:, :3], rtol=0, atol=0)
    assert not torch.allclose(before[:, 3], after[:, 3])


def test_padding_is_never_looked_at() -> None:
    model = estimator()
    short = model.scores(histories([-1, -1, 2, 3]))
    learned = model.loss(torch.tensor([[-1, -1, 2, 3]]), torch.tensor([[-1, -1, 3, 4]]), proposal=UNEVEN)
    with torch.no_grad():
        model.positions[:2] += 10.0
    np.testing.assert_array_equal(model.scores(histories([-1, -1, 2, 3])), short)
    torch.testing.assert_close(
        model.loss(torch.tensor([[-1, -1, 2, 3]]), torch.tensor([[-1, -1, 3, 4]]), proposal=UNEVEN), learned
    )
    assert np.isfinite(model.scores(histories([-1, -1, -1, -1]))).all()


def test_loss_is_the_mean_cross_entropy_of_the_targets_that_are_there() -> None:
    model = estimator()
    inputs, targets = torch.tensor([[-1, 0, 1, 2], [3, 4, 5, 0]]), torch.tensor([[-1, 1, 2, 3], [4, 5, 0, 1]])
    logits = model.encode(inputs) @ model.items.T
    expected = torch.nn.functional.cross_entropy(logits[targets >= 0], targets[targets >= 0])
    torch.testing.assert_close(model.loss(inputs, targets, proposal=UNEVEN), expected)


def test_rows_are_learned_from_the_same_whatever_they_are_encoded_with(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = torch.tensor([[3, 4, 5, 0], [-1, -1, -1, 2], [-1, -1, -1, -1], [-1, -1, 0, 1]])
    targets = torch.tensor([[4, 5, 0, 1], [-1, -1, -1, 3], [-1, -1, -1, -1], [-1, -1, 1, 2]])
    losses, gradients = [], []
    for rows_together in (1, 2, 4):
        monkeypatch.setattr(module, "ROWS_OF_LIKE_LENGTH", rows_together)
        model = estimator()
        losses.append(model.loss(inputs, targets, proposal=UNEVEN))
        gradients.append(torch.autograd.grad(losses[-1], [model.items, model.positions]))
    logits = model.encode(inputs) @ model.items.T
    torch.testing.assert_close(
        losses[0], torch.nn.functional.cross_entropy(logits[targets >= 0], targets[targets >= 0])
    )
    for other in (1, 2):
        torch.testing.assert_close(losses[other], losses[0])
        torch.testing.assert_close(gradients[other], gradients[0])


def test_a_sampled_loss_tells_targets_from_the_items_that_were_drawn() -> None:
    inputs, targets = torch.tensor([[-1, 0, 1, 2], [3, 4, 5, 0]]), torch.tensor([[-1, 1, 2, 3], [4, 5, 0, 1]])
    model = estimator(negatives=3)
    torch.manual_seed(5)
    loss = model.loss(inputs, targets, proposal=UNEVEN)
    torch.manual_seed(5)
    drawn, stand_for = UNEVEN.draw(3)
    vectors, labels = model.encode(inputs)[targets >= 0], targets[targets >= 0].unsqueeze(1)
    expected = sampled_softmax_loss(vectors, model.items, labels, sample=drawn, stand_for=stand_for) / len(labels)
    torch.testing.assert_close(loss, expected)
    every = [model.items, model.positions]
    torch.testing.assert_close(torch.autograd.grad(loss, every), torch.autograd.grad(expected, every))


def test_windows_count_what_is_next_in_line() -> None:
    sequences = sequences_of([[0, 1, 2, 1, 1, 1, 2], [2, 1]])
    windows = TrainingWindows.cut(sequences, split_none(sequences), length=4)
    np.testing.assert_array_equal(windows.counts(4), [0, 5, 2, 0])


def test_what_comes_next_is_what_the_last_position_expects() -> None:
    model, asked = estimator(), histories([0, 1, 2, 3], [-1, -1, 4, 5])
    encoded = model.encode(torch.from_numpy(asked).long())
    np.testing.assert_allclose(model.expectations(asked), encoded[:, -1].detach().numpy(), rtol=1e-5, atol=1e-6)


def test_several_targets_of_a_position_share_it() -> None:
    model = estimator()
    inputs, first = torch.tensor([[-1, 0, 1, 2]]), torch.tensor([[-1, 1, 2, 3]])
    second = torch.tensor([[-1, 4, 5, -1]])
    logits = model.encode(inputs)[0, 1:] @ model.items.T
    log_p = logits.log_softmax(dim=1)
    expected = -(log_p[0, [1, 4]].mean() + log_p[1, [2, 5]].mean() + log_p[2, 3]) / 3
    torch.testing.assert_close(model.loss(inputs, torch.stack([first, second], dim=2), proposal=UNEVEN), expected)


def test_windows_make_every_interaction_after_the_first_a_target_once() -> None:
    sequences = sequences_of([[0, 1, 2, 3, 4, 5, 0], [4, 5]])
    windows = TrainingWindows.cut(sequences, split_none(sequences), length=4)
    inputs, wanted = windows.batch(np.arange(len(windows)))
    assert inputs.shape == wanted.shape == (3, 4)
    assert ((inputs < 0) == (wanted < 0)).all()
    pairs = zip(inputs.ravel().tolist(), wanted.ravel().tolist(), strict=True)
    targets = [pair for pair in pairs if pair[0] >= 0]
    expected = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (4, 5)]
    assert sorted(targets) == sorted(expected)


def test_targets_of_windows_come_from_the_next_interactions_of_the_same_user() -> None:
    sequences = sequences_of([list(range(10)), list(range(20, 24))])
    windows = TrainingWindows.cut(sequences, split_none(sequences), length=4)
    seen: dict[int, set[int]] = {}
    for epoch in range(60):
        inputs, targets = windows.batch(np.arange(len(windows)), horizon=TargetHorizon(3, seed=1), epoch=epoch)
        for item, target in zip(inputs.flat, targets.flat, strict=True):
            seen.setdefault(int(item), set()).add(int(target))
    assert seen.pop(-1) == {-1}
    last = {item: 9 if item < 20 else 23 for item in seen}
    assert seen == {item: set(range(item + 1, min(item + 3, last[item]) + 1)) for item in seen}
    assert len(seen) == 9 + 3


def train(
    directory: Path | None, *, stop_after: int | None = None, **changes: Any
) -> tuple[TrainedEstimator, list[Any]]:
    """Trained on the ring, where everyone has every item; stopped after so many steps of this call, if told to."""
    given: dict[str, Any] = {"width": 8, "layers": 1, "heads": 1, "epochs": 40, "batch_size": 4, "dropout": 0.1}
    settings = EstimatorSettings.model_validate(given | {"learning_rate": 0.02, "first_vectors": "random"} | changes)
    split, steps = split_none(RING), itertools.count(1)
    key = estimator_key(settings, split=split, validation_users=split.validation, data="ring")
    events: list[Any] = []
    run = EstimatorRun(
        settings=settings,
        horizon=TargetHorizon(2),
        seed=3,
        validate=lambda estimator: float(estimator.scores(histories([0, 1, 2, 3]))[0, 4]),
        listen=events.append,
        should_stop=lambda: next(steps) == stop_after,
    )
    store = None if directory is None else EstimatorStore.at(directory, key)
    return load_or_train_estimator(store, RING, split, num_items=6, history_length=4, run=run), events


def same_scores(left: TrainedEstimator, right: TrainedEstimator) -> bool:
    asked = histories([0, 1, 2, 3], [-1, -1, 4, 5], [3, 2, 1, 0])
    return left.estimator.scores(asked).tobytes() == right.estimator.scores(asked).tobytes()


def test_it_starts_from_who_interacted_with_what() -> None:
    """Users of 0, 1 and 2 never meet those of 3, 4 and 5; a training that moves nothing shows where it began."""
    apart = sequences_of([[0, 1, 2], [1, 2, 0], [3, 4, 5], [4, 5, 3]])
    settings = EstimatorSettings(width=8, heads=1, layers=1, epochs=1, learning_rate=1e-9)
    run = EstimatorRun(settings=settings, horizon=TargetHorizon(), seed=3, validate=None, listen=lambda _: None)
    trained = load_or_train_estimator(None, apart, split_none(apart), num_items=6, history_length=4, run=run)
    assert isinstance(trained.estimator, SasRec)
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
    _, other_events = train(tmp_path, patience=40, epochs=2)
    assert len(other_events) == 2, "other settings are another estimator"


def test_a_loss_that_is_lost_is_never_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SasRec, "loss", lambda self, *_, **__: self.items.sum() * float("nan"))
    with pytest.raises(DivergedError, match=r"Lower estimator\.learning_rate \(now 0\.02\)"):
        train(tmp_path)
    assert not list(tmp_path.glob("sasrec-*/*"))


@pytest.mark.parametrize("stops", [(1,), (5, 7, 1), (12, 4)])
def test_stopped_at_any_step_it_goes_on_to_the_same_bytes(tmp_path: Path, stops: tuple[int, ...]) -> None:
    """Twelve windows in steps of four: three steps in an epoch."""
    whole, events = train(None, epochs=6, patience=2)
    for stop_after in stops:
        with pytest.raises(InterruptedTraining, match=r"after step \d of \d; its checkpoint is in .*--resume"):
            train(tmp_path, epochs=6, patience=2, stop_after=stop_after)
    resumed, rest = train(tmp_path, epochs=6, patience=2)
    assert same_scores(resumed, whole)
    assert rest == events[len(events) - len(rest) :]
    assert len(rest) < len(events) or stops == (1,)
    assert [path.name for path in tmp_path.glob("*unfinished*")] == []


def test_what_decides_an_estimator_is_in_its_key() -> None:
    base = EstimatorSettings()
    split = split_users(sequences_of([list(range(20))] * 30), seed=1)
    other_split = split_users(sequences_of([list(range(20))] * 30), seed=2)

    def key(settings: EstimatorSettings = base, split: Split = split, **rest: Any) -> str:
        given = {"data": "d", "seed": 1, "protocol": "clean", "history_length": 5, "horizon": [1, 1]}
        return estimator_key(settings, split=split, validation_users=split.validation, **(given | rest))

    assert key() == key(EstimatorSettings(seed=9)), "which seed was taken is told apart by `seed`"
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


@pytest.mark.parametrize("length", [20, 69])
def test_gradients_are_the_same_bytes_each_time_on_two_threads(length: int) -> None:
    settings = EstimatorSettings(width=64, layers=1, heads=2, dropout=0.0)
    model = SasRec(settings, num_items=1682, history_length=length, generator=torch.Generator().manual_seed(1))
    inputs = torch.randint(0, 1682, (64, length), generator=torch.Generator().manual_seed(2))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = set()
        for _ in range(6):
            model.zero_grad()
            model.encode(inputs).square().sum().backward()
            gradient = model.items.grad
            assert gradient is not None
            seen.add(gradient.numpy().tobytes())
    finally:
        torch.set_num_threads(threads)
    assert len(seen) == 1


def test_the_smallest_estimator_follows_the_crowd() -> None:
    scores = PopularityEstimator(np.array([3, 9, 0])).scores(histories([0], [2]))
    assert scores.argsort(axis=1).tolist() == [[2, 0, 1], [2, 0, 1]]
