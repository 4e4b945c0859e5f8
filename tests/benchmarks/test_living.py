"""The benchmark of a living catalogue, on a small log of news."""

from benchmarks.living import Asked, ask, measure
from tests.fitting.test_trend import news_log
from tests.small import small_config

DAY = 86_400.0


def test_recall_is_the_mean_over_users_of_the_labels_that_count() -> None:
    asked = Asked([[1], [2]], [{3, 4}, {5}])
    assert asked.recall([[3, 9], [5]]) == 0.75
    assert asked.recall([[3, 9], [5]], among={4, 5}) == 0.5
    assert asked.recall([[3], [5]], among={99}) == 0.0


def test_users_are_asked_what_they_had_not_had_before() -> None:
    log = news_log(days=4).frame
    cut = log["timestamp"].min() + 3 * DAY  # type: ignore[operator]
    before, after = log.filter(log["timestamp"] < cut), log.filter(log["timestamp"] >= cut)
    asked = ask(before, after, users=10, seed=0)
    assert 0 < len(asked.histories) <= 10
    assert all(labels.isdisjoint(history) for history, labels in zip(asked.histories, asked.labels, strict=True))


def test_all_figures_come_out() -> None:
    config = small_config(
        data={"holdout": "time", "min_held_out": 2, "held_out_shares": (0.05, 0.0)},
        model={"parts": ["tower", "memory"]},
        estimator={"width": 8, "layers": 1, "epochs": 1},
    )
    figures = measure(news_log(days=8).frame, days=1, day_length=DAY, config=config, users=50)
    assert figures["update_quality"] > 0.5
    assert figures["update_cost"] > 0.0
    assert figures["recall"]["update"] >= figures["recall"]["nothing"]
    assert figures["insert_ms_per_item"] > 0.0
