"""Tables and lines of experiments, from results that are made up."""

from typing import Any

import numpy as np
import pytest

from beamtree.compare.curve import Curve
from beamtree.compare.reproduce.experiment import Evidence, Variant
from beamtree.compare.reproduce.paper import LOGS, published_accuracy, published_costs, published_label_changes
from beamtree.compare.reproduce.parts import (
    accuracy_part,
    cost_part,
    instances_part,
    megabytes,
    order_part,
    rounds_part,
    seconds_of_all,
    seconds_of_thousand_steps,
    sweep_part,
)
from beamtree.compare.summary import summarise

USERS = 30


def result(system: str, value: float, *, label: str | None = None, **fields: Any) -> dict[str, Any]:
    metrics = {"f@20": value, "ndcg@20": value}
    named = {} if label is None else {"label": label}
    per_user = {name: [of_metric] * USERS for name, of_metric in metrics.items()}
    return {"system": system, **named, "seed": 0, "metrics": metrics, "per_user": per_user, "users": USERS, **fields}


def evidence(variants: list[Variant], results: list[dict[str, Any]], *, with_paper: bool = False) -> Evidence:
    return Evidence(variants, summarise(results), [], with_paper)


def test_the_papers_figures_are_as_printed() -> None:
    assert published_accuracy()["Movie"]["DTR(T-RL)"] == 0.1580
    assert published_accuracy("precision@40")["Tmall"]["GRU4Rec"] == 0.0292
    assert published_accuracy("recall@20")["MIND"]["OTM"] == 0.1609
    assert published_costs("training-time")["Amazon"]["OTM"] == 278.74
    assert published_costs("inference-time")["Tmall"]["DTR"] == 18.79
    assert published_costs("memory")["MIND"]["JTR"] == 7.44
    assert published_label_changes()["MIND"][-1] == 0.1766
    assert all(len(of_log) == 18 for of_log in published_accuracy().values())


def test_accuracy_stands_beside_the_papers() -> None:
    variants = [Variant("otm", "OTM"), Variant("dtr-t-rl", "DTR(T-RL)"), Variant("beamtree")]
    results = [result("otm", 0.1), result("dtr-t-rl", 0.2), result("beamtree", 0.3)]
    (table,) = accuracy_part(evidence(variants, results, with_paper=True)).tables
    assert table.rows[0] == (
        "OTM",
        "0.1000",
        "0.500 [0.500, 0.500]",
        "0.1470 (0.93)",
        "0.1978 (0.84)",
        "0.0486 (0.84)",
        "0.0318 (0.86)",
    )
    assert table.rows[2][-len(LOGS) :] == ("",) * 4, "the paper does not have it"
    (plain,) = accuracy_part(evidence(variants, results)).tables
    assert len(plain.header) == 3
    order, ours = order_part(evidence(variants, results)).tables
    assert order.rows[0][0] == "dtr-t-rl > otm"
    assert [row[0] for row in ours.rows] == ["dtr-t-rl", "otm"]


def test_costs_and_their_proportion_to_the_reference() -> None:
    costs: dict[str, Any] = {
        "ms_batch": 2.0,
        "index_bytes": 3_000_000,
        "step_seconds": {"estimator": 9.0, "dtr-t-rl": 0.05},
    }
    cheaper: dict[str, Any] = {"ms_batch": 1.0, "index_bytes": None, "step_seconds": {"trained": 0.01}}
    variants = [Variant("dtr-t-rl", "DTR(T-RL)"), Variant("din-published", "DIN"), Variant("popularity")]
    results = [
        result("dtr-t-rl", 0.2, **costs),
        result("din-published", 0.1, **cheaper),
        result("popularity", 0.1, ms_batch=0.1, index_bytes=None),
    ]
    found = evidence(variants, results, with_paper=True)
    (table,) = cost_part(
        found, title="Time", unit="s", of_row=seconds_of_thousand_steps, published="training-time"
    ).tables
    assert [row[:4] for row in table.rows] == [
        ("DTR(T-RL)", "50", "1.00", "158.2 (1.00)"),
        ("DIN", "10", "0.20", "59.95 (0.38)"),
    ]
    (table,) = cost_part(found, title="Time", unit="s", of_row=seconds_of_all, published="inference-time").tables
    assert [row[:4] for row in table.rows][:2] == [
        ("DTR(T-RL)", "0.06", "1.00", "5.58 (1.00)"),
        ("DIN", "0.03", "0.50", "81.32 (14.57)"),
    ]
    (table,) = cost_part(found, title="Size", unit="MB", of_row=megabytes, published="memory").tables
    assert [row[:2] for row in table.rows] == [("DTR(T-RL)", "3")]


def test_a_sweep_is_a_column_for_each_system() -> None:
    variants = [
        Variant(system, changes={"negatives": at}, setting=f"negatives {at}", at=float(at))
        for system in ("dtr-u", "dtr-t")
        for at in (10, 20)
    ]
    results = [
        result(variant.system, value, label=variant.label)
        for variant, value in zip(variants, (0.1, 0.2, 0.3, 0.15), strict=True)
    ]
    part = sweep_part(evidence(variants, results[:-1]), axis="negatives per level")
    assert part.tables[0].header == ("negatives per level", "dtr-u", "dtr-t")
    assert part.tables[0].rows == (("10", "0.1000", "0.3000"), ("20", "0.2000", ""))
    full = sweep_part(evidence(variants, results), axis="negatives per level")
    assert full.tables[1].rows == (
        ("dtr-u", "20", "2.000 [2.000, 2.000]"),
        ("dtr-t", "10", "0.500 [0.500, 0.500]"),
    )
    assert full.plot.count("<svg") == 1


def test_curves_are_means_over_the_seeds_that_got_there() -> None:
    def curve(seed: int, values: list[float]) -> Curve:
        points = [{"round": at, "instances": 100 * (at + 1), "f@20": value} for at, value in enumerate(values)]
        return Curve("jtm", "jtm", seed, points, points)

    found = Evidence([], summarise([]), [curve(0, [0.1, 0.2]), curve(1, [0.3])], with_paper=False)
    (rounds,) = rounds_part(found).tables
    assert rounds.rows == (("1", "0.2000"), ("2", "0.2000"))
    (instances,) = instances_part(found).tables
    assert instances.rows == (("jtm", "2", "200", "0.2000", "0.2000"),)
    assert np.isclose(float(instances.rows[0][3]), 0.2)
    assert "instances" in instances_part(found).plot
    assert instances_part(Evidence([], summarise([]), [], with_paper=False)).plot == ""


def test_an_unknown_metric_is_an_error() -> None:
    with pytest.raises(ValueError, match="ndcg"):
        published_accuracy("ndcg@20")
