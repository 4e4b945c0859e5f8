"""What is said where a budget ends before every training interaction was seen once."""

import pytest

from beamtree.config import Config
from beamtree.data.prepare import prepare_log
from beamtree.evaluation.protocol import split_dataset
from beamtree.recommender import DeepTreeRetriever
from beamtree.training.budget import explain_partial_epochs
from beamtree.training.events import EpochCutShort, Event, LogPrepared, StepDone
from beamtree.training.strategies import Strategies
from beamtree.training.windows import TrainingWindows
from tests.small import small_config, two_group_log


def lines(config: Config) -> list[str]:
    prepared = prepare_log(two_group_log(), config=config)
    config = prepared.config
    split = split_dataset(prepared.dataset, config=config)
    return explain_partial_epochs(prepared.dataset, split, config=config, strategies=Strategies.of(config))


def test_a_budget_below_an_epoch_is_told_with_the_setting_that_decides() -> None:
    config = small_config(model={"parts": ["tower", "memory"]}, estimator={"max_positions": 100})
    prepared = prepare_log(two_group_log(), config=config)
    split = split_dataset(prepared.dataset, config=prepared.config)
    positions = int(TrainingWindows.cut(prepared.dataset.sequences, split, length=5).lengths.sum())
    [line] = lines(config)
    share = f"{100 / positions:.0%} of an epoch"
    assert line.startswith(f"the encoder learns from 100 of {positions:,} positions, {share}")
    assert line.endswith(f"estimator.max_positions={positions} gives a whole one")
    enough = {"max_positions": positions}
    assert lines(small_config(model={"parts": ["tower", "memory"]}, estimator=enough)) == []


@pytest.mark.parametrize(
    ("sections", "learner"),
    [
        ({"training": {"max_instances": 10}}, ["the attention network"]),
        ({"model": {"parts": ["memory"]}, "training": {"max_instances": 10}, "estimator": {"max_positions": 10}}, []),
        ({"training": {"method": "dtr-t-rl"}, "estimator": {"max_positions": 10}}, ["the encoder"]),
    ],
)
def test_only_learners_that_are_at_work_are_spoken_of(
    sections: dict[str, dict[str, object]], learner: list[str]
) -> None:
    assert [line.split(" learns")[0] for line in lines(small_config(**sections))] == learner


def test_what_was_read_and_what_is_cut_short_is_told_before_the_first_step() -> None:
    events: list[Event] = []
    config = small_config(training={"max_instances": 40})
    DeepTreeRetriever(config).fit(two_group_log(), listen=events.append)
    kinds = [type(event) for event in events]
    assert kinds[:2] == [LogPrepared, EpochCutShort]
    assert kinds.index(StepDone) >= 2
