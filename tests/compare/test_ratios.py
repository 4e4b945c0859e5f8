"""Ratios of systems on the same users, and the paper's order."""

from typing import Any

import numpy as np
import pytest

from beamtree.compare.ratios import order_among_trees, order_sentence, ours_over_others, ratio
from beamtree.compare.summary import summarise

USERS = 50


def result(system: str, value: float, *, seed: int = 0, noise: float = 0.0, users: int = USERS) -> dict[str, Any]:
    values = value + noise * np.random.default_rng(seed).standard_normal(users)
    per_user = {"f@20": values.tolist(), "ndcg@20": (2 * values).tolist()}
    return {
        "system": system,
        "seed": seed,
        "metrics": {name: float(np.mean(of_metric)) for name, of_metric in per_user.items()},
        "per_user": per_user,
    }


def test_ours_over_each_other_system() -> None:
    results = [result("beamtree", 0.3), result("ease", 0.2), result("sasrec", 0.4), result("ials", 0.3, noise=0.2)]
    table = ours_over_others(summarise(results))
    assert table is not None
    by_name = {row[0]: row for row in table.rows}
    assert by_name["ease"][2:] == ("1.500 [1.500, 1.500]", "1.500 [1.500, 1.500]", "ahead")
    assert by_name["sasrec"][-1] == "behind"
    assert by_name["ials"][-1] == "level", "within the luck of the users"
    assert ours_over_others(summarise(results[1:])) is None


def test_the_order_holds_where_intervals_say_so() -> None:
    results = [result("dtr-t-rl", 0.3), result("dtr-t", 0.2), result("otm", 0.25, noise=0.0)]
    results += [result("plt", 0.25, noise=0.3, seed=seed) for seed in (0, 1)]
    summary = summarise(results)
    table = order_among_trees(summary)
    assert table is not None
    assert [(row[0], row[3]) for row in table.rows] == [
        ("dtr-t-rl > dtr-t", "holds"),
        ("dtr-t > otm", "the other way round"),
        ("otm > plt", "cannot be told"),
    ]
    assert table.rows[0][2] == "1 of 1"
    assert order_sentence(summary) == (
        "Of the 3 neighbours in the paper's order that were measured: 1 hold (dtr-t-rl > dtr-t); 1 are the other way "
        "round (dtr-t > otm); 1 cannot be told (otm > plt)."
    )
    assert order_among_trees(summarise(results[:1])) is None


def test_other_users_cannot_be_compared() -> None:
    first, second = summarise([result("ease", 0.2), result("ials", 0.1, users=7)]).rows[::-1]
    assert ratio(first, second) is None
    same, other = summarise([result("ease", 0.2), result("ials", 0.1)]).rows
    found = ratio(same, other, metric="ndcg@20")
    assert found is not None
    assert found.estimate == pytest.approx(2.0)
