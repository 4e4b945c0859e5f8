"""How fits are divided within instances and seconds, and what is found again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beamtree.baselines.encoder import config_within, with_positions, with_positions_for
from beamtree.baselines.protocol import Budget, CurvePoint
from beamtree.baselines.trees.dtr import Dtr
from beamtree.baselines.trees.encoder import PLANNED, train_encoder
from beamtree.baselines.trees.recipe import PUBLISHED, Recipe, system_config
from beamtree.baselines.trees.run import Plan, TreeRun, make_plan, part_of
from beamtree.data.dataset import Dataset
from beamtree.data.split import split_users
from beamtree.training.gradients import Gradients
from tests.baselines.small_logs import dataset_of, whole
from tests.baselines.trees.small_systems import SMALL, small_budget
from tests.small import encoder_settings


class SleepingLearner:
    """Counts the batches that it is shown; a step never learns."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def gradients(self, batch: Any, *, step: int) -> Gradients:  # noqa: ARG002
        self.batches.append(len(batch))
        return Gradients(1.0, {})

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not for planning")


@pytest.fixture
def dataset() -> Dataset:
    """Thirty users of eleven interactions: 300 instances."""
    return dataset_of([list(np.random.default_rng(user).permutation(11)) for user in range(30)], num_items=11)


def run_of(dataset: Dataset, budget: Budget, recipe: Recipe = SMALL) -> TreeRun:
    config = system_config(budget.config, dataset, recipe=recipe, history_table="shared")
    return TreeRun("system", dataset, whole(dataset), budget, config, recipe)


def plan_of(run: TreeRun, *, max_rounds: int, learner: SleepingLearner | None = None) -> Plan:
    return make_plan(run, learner or SleepingLearner(), run.instances, max_rounds=max_rounds)


def test_rounds_share_the_instances(dataset: Dataset) -> None:
    """300 instances for 32 epochs in batches of 32: 300 steps, of which a round has at least 100."""
    run = run_of(dataset, small_budget(epochs=32.0))
    assert run.max_steps == 300
    assert plan_of(run, max_rounds=12) == Plan(rounds=3, steps=100)
    assert plan_of(run, max_rounds=1) == Plan(rounds=1, steps=300)
    two_rates = replace(run, recipe=replace(SMALL, learning_rates=(0.1, 0.01)))
    assert plan_of(two_rates, max_rounds=12) == Plan(rounds=3, steps=75), "the first round is trained twice"
    short = run_of(dataset, small_budget(epochs=1.0))
    assert plan_of(short, max_rounds=12) == Plan(rounds=2, steps=4), "the tree is learned once at least"


def test_nothing_is_timed_without_seconds_and_no_time_is_one_step(dataset: Dataset) -> None:
    learner = SleepingLearner()
    plan_of(run_of(dataset, small_budget(epochs=2.0)), max_rounds=2, learner=learner)
    assert learner.batches == []
    spent = replace(small_budget(epochs=2.0, seconds=0.0), started=0.0)
    assert plan_of(run_of(dataset, spent), max_rounds=2, learner=learner) == Plan(rounds=2, steps=1)
    assert learner.batches == [32, 32, 32]


def test_a_part_of_a_budget() -> None:
    budget = small_budget(epochs=8.0)
    half = part_of(budget, 0.5)
    assert half.config.training.epochs == 4.0
    most = budget.config.training.max_instances
    assert most is not None
    assert half.config.training.max_instances == most // 2
    assert half.seconds is None
    timed = part_of(replace(budget, seconds=1e6), 0.5)
    assert timed.seconds == pytest.approx(5e5, rel=1e-3)


def test_published_sizes_are_the_papers(dataset: Dataset) -> None:
    config = run_of(dataset, small_budget(epochs=1.0), PUBLISHED).config
    model, training = config.model, config.training
    assert (model.embedding_dim, model.layers, model.network.attention_hidden) == (24, (128, 64, 24), 36)
    assert (model.attention_history, len(model.windows), model.parts) == (69, 10, ("attention",))
    assert (training.batch_size, training.negatives, training.target_horizon) == (100, 70, 1)
    assert model.network.embedding_init == "random"
    assert config.tree.order == "clustering", "this log has no categories"
    assert (
        run_of(dataset, small_budget(epochs=1.0), Recipe(warm_start=True)).config.model.network.embedding_init
        == "cooccurrence"
    )


def test_other_settings_and_budgets_have_another_folder(dataset: Dataset, tmp_path: Path) -> None:
    budget = small_budget(epochs=2.0, directory=tmp_path)
    run = run_of(dataset, budget)
    others = [
        run_of(dataset, replace(budget, seconds=9.0)),
        run_of(dataset, small_budget(epochs=2.0, seed=1, directory=tmp_path)),
        replace(run, recipe=replace(SMALL, learning_rates=(0.5,))),
        replace(run, name="another"),
    ]
    folders = [each.directory for each in (run, *others)]
    assert len(set(folders)) == len(folders)
    assert run_of(dataset, budget).directory == run.directory
    assert run_of(dataset, small_budget(epochs=2.0)).directory is None


def test_an_encoder_learns_from_what_fits_into_the_time(dataset: Dataset) -> None:
    config = run_of(dataset, small_budget(epochs=2.0)).config
    config = config.model_copy(
        update={"estimator": encoder_settings(**{**config.estimator.model_dump(), "batch_positions": 20})}
    )
    planned = with_positions_for(dataset, whole(dataset), config=config, seconds=0.0)
    assert planned.estimator.max_positions == 1
    plenty = with_positions_for(dataset, whole(dataset), config=config, seconds=1e9)
    assert plenty.estimator.max_positions == config.estimator.max_positions, "never more than the settings allow"


def test_whoever_shares_a_folder_shares_the_plan(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = small_budget(epochs=2.0, directory=tmp_path)
    assert config_within(budget, dataset, whole(dataset)) is budget.config, "without seconds there is nothing to plan"
    timed = iter([7, 9])
    monkeypatch.setattr(
        "beamtree.baselines.encoder.with_positions_for",
        lambda *_, config, **__: with_positions(config, next(timed)),
    )
    bounded = replace(budget, seconds=30.0)
    found = [config_within(bounded, dataset, whole(dataset)).estimator.max_positions for _ in range(2)]
    longer = config_within(replace(budget, seconds=60.0), dataset, whole(dataset)).estimator.max_positions
    assert (found, longer) == ([7, 7], 9)


def test_a_second_start_has_the_encoder_of_the_first(dataset: Dataset, tmp_path: Path) -> None:
    budget = small_budget(epochs=2.0, seconds=60.0, directory=tmp_path)
    estimator = encoder_settings(**{**budget.config.estimator.model_dump(), "batch_positions": 20, "epochs": 2})
    budget = replace(budget, config=budget.config.model_copy(update={"estimator": estimator}))
    run = run_of(dataset, budget)
    first = train_encoder(run).item_vectors()
    assert run.directory is not None
    assert int((run.directory / PLANNED).read_text()) > 0
    steps: list[object] = []
    again = run_of(dataset, replace(budget, listen=steps.append))
    np.testing.assert_array_equal(train_encoder(again).item_vectors(), first)
    assert steps == []


def test_a_tree_with_more_branches_has_as_many_negatives_in_all(dataset: Dataset) -> None:
    """Eleven items: four levels of two branches, two of four; 4 x 6 negatives are 2 x 12."""
    recipe = replace(SMALL, negatives=6, branching=4, order="random")
    config = run_of(dataset, small_budget(epochs=1.0), recipe).config
    assert (config.tree.branching, config.tree.order, config.training.negatives) == (4, "random", 12)
    binary = run_of(dataset, small_budget(epochs=1.0), replace(SMALL, negatives=6)).config
    assert (binary.tree.branching, binary.training.negatives) == (2, 6)


def test_a_curve_has_every_validation_and_the_end_of_each_round(dataset: Dataset) -> None:
    """Two learning rates in the first round, of which one goes on; batches of 32."""
    points: list[CurvePoint] = []
    budget = replace(small_budget(epochs=6.0), record=points.append)
    recipe = replace(SMALL, learning_rates=(0.03, 0.01), min_round_steps=20)
    split = split_users(dataset.sequences, seed=0, validation_share=0.2, test_share=0.2)
    Dtr("dtr-u", recipe).fit(dataset, split, budget=budget)
    ends = [point for point in points if point.is_round]
    assert [point.round for point in ends] == [0, 1]
    assert ends[1].instances == 2 * ends[0].instances
    first = [point for point in points if point.round == 0 and not point.is_round]
    assert [point.learning_rate for point in first] == [0.03, 0.03, 0.01, 0.01]
    assert {point.instances for point in first if point.learning_rate == 0.01} == {
        point.instances for point in first if point.learning_rate == 0.03
    }
    later = [point for point in points if point.round == 1 and not point.is_round]
    assert {point.learning_rate for point in later} == {ends[0].learning_rate}
    assert later[-1].instances == ends[1].instances
    best = max(first, key=lambda point: point.metrics["f@20"])
    assert ends[0].metrics["f@20"] == best.metrics["f@20"]
