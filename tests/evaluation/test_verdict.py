"""The line under a table, for models that are ahead, level and behind."""

import re

import numpy as np
import pytest

from beamtree.config import Config
from beamtree.evaluation.metrics import Metrics
from beamtree.evaluation.verdict import judge
from beamtree.types import Float64Array

BASE = np.tile([0.1, 0.3], 20)


def metrics(values: Float64Array) -> Metrics:
    return Metrics({"f@20": float(values.mean())}, {"f@20": values}, len(values))


BASELINES = {"popularity": metrics(BASE / 2), "item-to-item": metrics(BASE), "tfidf-knn": metrics(BASE)}


@pytest.mark.parametrize(
    ("values", "standing", "line"),
    [
        (
            1.1 * BASE,
            "ahead",
            "Ahead of the best simple baseline (item-to-item) in F@20 by 10.0 % "
            "[95 % interval +10.0 to +10.0 % over 40 users].",
        ),
        (
            BASE,
            "level",
            "Level with the best simple baseline (item-to-item) in F@20: the interval holds zero "
            "[95 % interval +0.0 to +0.0 % over 40 users].",
        ),
        (
            0.75 * BASE,
            "behind",
            "Behind the best simple baseline (item-to-item) in F@20 by 25.0 % "
            "[95 % interval -25.0 to -25.0 % over 40 users]: try training longer",
        ),
    ],
)
def test_how_a_model_stands(values: Float64Array, standing: str, line: str) -> None:
    verdict = judge(metrics(values), BASELINES, learning=[], config=Config())
    assert verdict.standing == standing
    assert verdict.baseline == "item-to-item", "the first of the two that are best"
    assert verdict.line().startswith(line)


def test_a_difference_that_users_disagree_about_is_none() -> None:
    verdict = judge(metrics(BASE[::-1].copy() * 1.02), BASELINES, learning=[], config=Config())
    assert verdict.standing == "level"
    assert verdict.interval.low < 0 < verdict.interval.high


def test_baselines_that_learn_are_not_called_simple() -> None:
    verdict = judge(metrics(BASE), BASELINES, learning=["tfidf-knn"], config=Config())
    assert "the best baseline (item-to-item)" in verdict.line()


def test_a_baseline_without_a_hit_is_beaten_by_a_plain_difference() -> None:
    verdict = judge(metrics(BASE), {"popularity": metrics(0 * BASE)}, learning=[], config=Config())
    assert not verdict.is_relative
    assert verdict.line().startswith(
        "Ahead of the best simple baseline (popularity) in F@20 by 0.2000 [95 % interval +0.1"
    )


@pytest.mark.parametrize(
    ("config", "tried"),
    [
        (Config.preset("instant"), "--preset small"),
        (Config.preset("small", training={"epochs": 3}), "training.epochs=12 --set training.max_instances=600000"),
        (
            Config.preset("small", training={"epochs": 3, "max_instances": None}),
            "training.epochs=12), or --preset instant",
        ),
        (Config.preset("paper"), "--set training.epochs=1000 --set training.max_instances=32000000"),
    ],
)
def test_what_to_try_is_something_that_the_settings_have(config: Config, tried: str) -> None:
    line = judge(metrics(0.5 * BASE), BASELINES, learning=[], config=config).line()
    assert tried in line
    Config.load(assignments=re.findall(r"--set ([^ ),]+)", line))


def test_a_handful_of_users_decides_nothing() -> None:
    few = {name: metrics(np.full(5, 0.1)) for name in BASELINES}
    verdict = judge(metrics(np.full(5, 0.2)), few, learning=[], config=Config())
    assert verdict.standing == "unknown"
    assert verdict.line() == (
        "Not comparable with the best simple baseline (popularity) in F@20: 5 users are too few, hold out at least 6."
    )
