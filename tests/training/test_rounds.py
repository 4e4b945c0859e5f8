"""Alternating between model and tree: what moves, what is kept, and that a stopped run goes on to the same bytes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pytest

from beamtree.artefact import Artefact
from beamtree.config import Config
from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.split import Split, split_users
from beamtree.errors import ArtefactError, InputError, InterruptedTraining
from beamtree.fitting import alternation
from beamtree.fitting.estimator import MakeEstimator
from beamtree.fitting.fit import fit_model
from beamtree.fitting.run import WorkDirectory
from beamtree.model.counting import count_items
from beamtree.model.estimator import PopularityEstimator
from beamtree.model.score import Score, build_score
from beamtree.storage import read_arrays, read_manifest
from beamtree.training.events import ESTIMATOR, TREE_MODEL, Event, StepDone, TreeRelearned, Validated
from beamtree.training.labels import Labels, RectifiedLabels
from beamtree.training.placement import move_leaf_rows
from beamtree.training.strategies import Strategies
from beamtree.tree.build import plant
from beamtree.tree.item_tree import ItemTree
from research.labels import SoftLabels
from tests.small import assert_same_bytes, small_config, two_group_log


def test_a_leaf_vector_travels_with_its_item() -> None:
    """Three items on four leaves; row 0 is the root, rows 1 and 2 its children, rows 3 to 6 the leaves."""
    old, new = plant([0, 1, 2], branching=2, num_leaves=4), plant([2, 0, 1], branching=2, num_leaves=4)
    assert old.leaf_of_item.tolist() == [0, 1, 2]
    table = np.arange(7, dtype=np.float32)[:, None] * 10
    moved = move_leaf_rows(table, old, new)[:, 0]
    assert moved[:3].tolist() == [0.0, 10.0, 20.0]
    assert {item: moved[3 + new.leaf_of_item[item]] for item in range(3)} == {0: 30.0, 1: 40.0, 2: 50.0}


def config_of(**changes: Any) -> Config:
    training = {"method": "dtr-t-rl", "rounds": 3, "epochs": 1, "validations": 2, "seed": 5, "learning_rate": 0.01}
    estimator = {"width": 8, "layers": 1, "epochs": 2, "validations": 2, "batch_positions": 64}
    return small_config(training=training | changes.pop("training", {}), estimator=estimator, **changes)


def fit(
    config: Config,
    *,
    work: WorkDirectory | None = None,
    listen: Callable[[Event], object] | None = None,
    estimator: MakeEstimator | None = None,
    strategies: Strategies | None = None,
) -> Artefact:
    dataset = prepare_dataset(two_group_log(), min_interactions=2)
    stop = False

    def stopping(event: Event) -> None:
        nonlocal stop
        if listen is not None and listen(event):
            stop = True

    split = split_users(dataset.sequences, seed=2)
    return fit_model(
        dataset,
        split,
        config=config,
        work=work,
        listen=stopping,
        should_stop=lambda: stop,
        estimator=estimator,
        strategies=strategies,
    )


def estimator_epochs(events: list[Event]) -> int:
    return sum(isinstance(event, Validated) and event.learner == ESTIMATOR for event in events)


def is_tree_step(event: Event) -> TypeGuard[StepDone]:
    return isinstance(event, StepDone) and event.learner == TREE_MODEL


def test_each_round_but_the_last_relearns_the_tree_and_the_best_is_kept() -> None:
    events: list[Event] = []
    artefact = fit(config_of(), listen=events.append)
    rounds = artefact.training["rounds"]
    assert [entry["round"] for entry in rounds] == [0, 1, 2]
    assert [event.round for event in events if isinstance(event, TreeRelearned)] == [1, 2]
    assert ["moved_share" in entry for entry in rounds] == [True, True, False]
    assert estimator_epochs(events) == 2
    scores = [entry["validation"]["f@20"] for entry in rounds]
    assert scores[artefact.training["best_round"]] == max(scores)


def test_a_score_is_built_once_for_each_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    trees: list[ItemTree] = []

    def counting(config: Config, tree: ItemTree, **options: Any) -> Score:
        trees.append(tree)
        return build_score(config, tree, **options)

    monkeypatch.setattr(alternation, "build_score", counting)
    fit(config_of(training={"method": "dtr-u", "rounds": 2}))
    assert len(trees) == 2
    assert (trees[0].item_at_leaf != trees[1].item_at_leaf).any()


@pytest.mark.parametrize(("placement", "target_horizon"), [("auction", 1), ("published", 3)])
def test_stopped_in_any_round_and_resumed_it_ends_with_the_same_bytes(
    tmp_path: Path, placement: str, target_horizon: int
) -> None:
    config = config_of(tree={"placement": placement}, training={"target_horizon": target_horizon})
    whole = fit(config)
    steps_per_round = whole.training["rounds"][0]["steps"]
    work, steps_seen = tmp_path / "work", 0

    def stop_every_round(event: Event) -> bool:
        nonlocal steps_seen
        steps_seen += is_tree_step(event)
        return is_tree_step(event) and event.step == steps_per_round // 2 and event.step > 0

    interruptions = 0
    while True:
        try:
            resumed = fit(
                config,
                work=WorkDirectory(work, resume=interruptions > 0),
                listen=stop_every_round if interruptions < 3 else None,
            )
            break
        except InterruptedTraining:
            interruptions += 1
    assert interruptions == 3
    assert_same_bytes(dict(resumed.weights), dict(whole.weights))
    assert resumed.tree.item_at_leaf.tolist() == whole.tree.item_at_leaf.tolist()
    assert steps_seen <= 3 * steps_per_round, "no step was taken twice"


@pytest.mark.parametrize("labels", [RectifiedLabels(), SoftLabels()], ids=["rectified", "soft"])
def test_a_resumed_run_reports_the_labels_of_all_its_parts(tmp_path: Path, labels: Labels) -> None:
    """Stopped in the second epoch: what is met again after that was counted before."""
    config = config_of(training={"rounds": 1, "epochs": 2, "patience": 10})
    strategies = replace(Strategies.of(config), labels=labels)
    (whole,) = fit(config, strategies=strategies).training["rounds"]
    with pytest.raises(InterruptedTraining):
        fit(
            config,
            work=WorkDirectory(tmp_path, resume=False),
            listen=lambda event: is_tree_step(event) and event.step == whole["steps"] * 3 // 4,
            strategies=strategies,
        )
    manifest = read_manifest(tmp_path / "round-0")
    before = read_arrays(tmp_path / "round-0", manifest, "state.safetensors")["instances/seconds"]
    artefact = fit(config, work=WorkDirectory(tmp_path, resume=True), strategies=strategies)
    (report,) = artefact.training["rounds"]
    assert report["mean_labels"] == whole["mean_labels"]
    assert report["labels_seconds"] > before > 0.0
    stages = [artefact.training[f"{part}_seconds"] for part in ("planting", "estimator", "labels", "learning")]
    assert artefact.training["seconds"] == pytest.approx(sum(stages), abs=0.3)


STAGES = {
    "estimator": "Stopped after step 1 of .* of the estimator",
    "planting": "Stopped while planting",
    "relearning": "Stopped while learning the tree",
}


class StopAt:
    """Says when to stop: at the given call, counted from 1. Notes after which call each event came."""

    def __init__(self, call: int | None = None) -> None:
        self.call = call
        self.calls = 0
        self.calls_before: list[tuple[Event, int]] = []

    def listen(self, event: Event) -> None:
        self.calls_before.append((event, self.calls))

    def should_stop(self) -> bool:
        self.calls += 1
        return self.calls == self.call

    def calls_until(self, is_it: Callable[[Event], bool], *, last: bool) -> int:
        found = [calls for event, calls in self.calls_before if is_it(event)]
        return found[-1] if last else found[0]


@pytest.mark.parametrize("stage", list(STAGES))
def test_the_first_request_stops_every_stage_and_resuming_gives_the_same_bytes(tmp_path: Path, stage: str) -> None:
    dataset = prepare_dataset(two_group_log(), min_interactions=2)
    split = split_users(dataset.sequences, seed=2)
    config = config_of(tree={"order": "clustering"}, training={"rounds": 2})

    def run(stop: StopAt, work: WorkDirectory | None) -> Artefact:
        return fit_model(dataset, split, config=config, work=work, listen=stop.listen, should_stop=stop.should_stop)

    dry = StopAt()
    whole = run(dry, None)
    call = {
        "estimator": 1,
        "planting": dry.calls_until(lambda event: estimator_epochs([event]) == 1, last=True) + 2,
        "relearning": dry.calls_until(lambda event: isinstance(event, TreeRelearned), last=False),
    }[stage]
    with pytest.raises(InterruptedTraining, match=STAGES[stage]):
        run(StopAt(call), WorkDirectory(tmp_path, resume=False))
    resumed = run(StopAt(), WorkDirectory(tmp_path, resume=True))
    assert_same_bytes(dict(resumed.weights), dict(whole.weights))
    assert resumed.tree.item_at_leaf.tolist() == whole.tree.item_at_leaf.tolist()


def test_runs_share_an_estimator_through_a_folder(tmp_path: Path) -> None:
    """Other settings of the attention network have the same estimator; another seed has another."""
    dataset = prepare_dataset(two_group_log(), min_interactions=2)
    split = split_users(dataset.sequences, seed=2)

    def run(*, seed: int, negatives: int = 3) -> tuple[Mapping[str, Any], int]:
        events: list[Event] = []
        config = config_of(training={"seed": seed, "rounds": 1, "negatives": negatives})
        artefact = fit_model(
            dataset,
            split,
            config=config,
            work=None,
            listen=events.append,
            should_stop=lambda: False,
            estimator_cache=tmp_path,
        )
        return artefact.training, estimator_epochs(events)

    first, epochs = run(seed=1)
    assert (first["estimator_reused"], epochs) == (False, 2)
    second, epochs = run(seed=1, negatives=2)
    assert (second["estimator_reused"], epochs) == (True, 0)
    assert second["estimator_seconds"] == first["estimator_seconds"]
    assert second["seconds"] == pytest.approx(
        sum(second[f"{part}_seconds"] for part in ("planting", "labels", "learning", "relearning")), abs=0.3
    )
    assert run(seed=2)[1] == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_another_estimator_can_stand_in() -> None:
    """One that likes what is rare rectifies other labels than one that likes what is common."""

    def make(dataset: Dataset, split: Split, *, rare: bool) -> PopularityEstimator:
        counts = count_items(dataset.sequences.items, split.train, num_items=len(dataset.items))
        return PopularityEstimator(counts.max() - counts if rare else counts)

    artefacts = [fit(config_of(training={"rounds": 1}), estimator=partial(make, rare=rare)) for rare in (False, True)]
    common, rare = (artefact.training["rounds"][0]["mean_labels"] for artefact in artefacts)
    assert common != rare
    assert artefacts[0].training["estimator_seconds"] < 1.0
    assert not artefacts[0].training["estimator_reused"]


def test_an_estimator_without_labels_to_rectify_is_refused() -> None:
    with pytest.raises(InputError, match="'dtr-t-rl', or leave the estimator out"):
        fit(
            config_of(training={"method": "dtr-t"}),
            estimator=lambda *_: PopularityEstimator(np.ones(3, dtype=np.int64)),
        )


def test_rounds_of_other_settings_are_refused(tmp_path: Path) -> None:
    fit(config_of(), work=WorkDirectory(tmp_path, resume=False))
    with pytest.raises(ArtefactError, match=r"training\.rounds: 3 then, 4 now"):
        fit(config_of(training={"rounds": 4}), work=WorkDirectory(tmp_path, resume=True))


def test_rounds_of_other_strategies_are_refused(tmp_path: Path) -> None:
    """Those of the settings need no name; what stands in for one of them has to be the same again."""
    config = config_of(training={"rounds": 1})
    soft = replace(Strategies.of(config), labels=SoftLabels(items=3))
    artefact = fit(config, work=WorkDirectory(tmp_path, resume=False), strategies=soft)
    assert artefact.training["strategies"] == {"labels": "soft, 3 items, share 0.5"}
    with pytest.raises(ArtefactError, match=r"strategies\.labels: 'soft, 3 items, share 0\.5' then, None now"):
        fit(config, work=WorkDirectory(tmp_path, resume=True))
    other = replace(soft, labels=SoftLabels(items=4))
    with pytest.raises(ArtefactError, match=r"strategies\.labels: .* then, 'soft, 4 items, share 0\.5' now"):
        fit(config, work=WorkDirectory(tmp_path, resume=True), strategies=other)
    again = fit(config, work=WorkDirectory(tmp_path, resume=True), strategies=soft)
    assert_same_bytes(dict(again.weights), dict(artefact.weights))
    assert "strategies" not in fit(config).training


def test_an_estimator_is_asked_by_the_labels_that_stand_in() -> None:
    """The labels decide, whatever the settings' method is."""
    config = config_of(training={"method": "dtr-t", "rounds": 1})
    labels = RectifiedLabels()
    artefact = fit(config, strategies=replace(Strategies.of(config), labels=labels))
    assert artefact.training["strategies"] == {"labels": "rectified"}
    same = fit(config_of(training={"rounds": 1}))
    assert_same_bytes(dict(artefact.weights), dict(same.weights))
