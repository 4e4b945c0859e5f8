"""Lines of a model beside baselines, and their tables: those of docs/baselines.md."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beamtree.compare.ratios import ratio
from beamtree.compare.summary import Result, summarise
from beamtree.compare.systems import SYSTEMS
from beamtree.training.events import ESTIMATOR
from experiments.lines import METRICS, Line, ratio_cell, table, with_users

MODEL, SCAN = "beamtree", "beamtree, exact scan"


def line_of(key: Mapping[str, Any], results: Sequence[Result]) -> Line:
    """The line of the model named in the key, from the results of one seed: metrics of all systems, and its ratios."""
    rows = {row.name: row for row in summarise(results).rows}
    own = rows[key["name"]]
    [result] = own.results
    [scan] = summarise([with_users(result, result["findings"]["exact scan"]["per_user"], label=SCAN)]).rows
    others = {name: rows[name] for name in SYSTEMS if name in rows and rows[name] is not own}
    asked = {SCAN: scan} | others
    found = {name: {metric: ratio(own, row, metric=metric) for metric in METRICS} for name, row in asked.items()}
    return {
        **key,
        "users": result["users"],
        "metrics": {
            name: {metric: round(row.metric(metric), 5) for metric in METRICS}
            for name, row in ({MODEL: own} | asked).items()
        },
        "ratios": {
            name: {metric: [round(bound, 4) for bound in interval] for metric, interval in ratios.items() if interval}
            for name, ratios in found.items()
            if ratios["f@20"] is not None
        },
        "seconds": {name: round(seconds_of(row.results[0]), 1) for name, row in ({MODEL: own} | others).items()},
        "weighing": [result["findings"].get("weighing")],
    }


def seconds_of(result: Result) -> float:
    """The seconds of a fit, those of an encoder that another fit had trained included."""
    is_reused = ESTIMATOR not in result["step_seconds"]
    return float(result["fit_seconds"] + is_reused * result.get("findings", {}).get("estimator_seconds", 0.0))


def tables(lines: Sequence[Line]) -> str:
    """One row for each log and model, means over seeds, beside its best baseline; then all ratios, line by line."""
    rows = []
    for data, name in sorted({(line["data"], line["name"]) for line in lines}):
        own = [line for line in lines if (line["data"], line["name"]) == (data, name)]
        means = {
            baseline: np.mean([line["metrics"][baseline]["f@20"] for line in own if baseline in line["metrics"]])
            for baseline in sorted({baseline for line in own for baseline in line["ratios"] if baseline != SCAN})
        }
        best = max(means, key=lambda baseline: means[baseline], default="")
        values = [[line["metrics"][MODEL][metric] for line in own] for metric in METRICS]
        ratios = [[line["ratios"][best][metric] for line in own if best in line["ratios"]] for metric in METRICS]
        rows.append(
            [
                *(data, name, str(len(own)), str(own[0]["users"])),
                *(f"{np.mean(some):.4f}" + (f" ± {np.std(some):.4f}" if len(own) > 1 else "") for some in values),
                f"{best} {means[best]:.4f}" if best else "",
                *map(ratio_cell, ratios),
                f"{np.mean([1 / line['ratios'][SCAN]['f@20'][0] for line in own]) ** -1:.4f}",
                f"{np.mean([line['seconds'][MODEL] for line in own]):.0f}",
            ]
        )
    header = "log|system|lines|users|F@20|NDCG@20|best baseline, F@20|ratio of F|ratio of NDCG|beam / scan|seconds"
    return f"{table(header.split('|'), rows)}\n\n{table_of_ratios(lines)}".rstrip()


def table_of_ratios(lines: Sequence[Line]) -> str:
    """One row for each line with baselines: the ratio of F@20 to each, with its interval; nothing without any."""
    names = list(dict.fromkeys(name for line in lines for name in line["ratios"] if name != SCAN))
    rows = [
        [line["data"], line["name"], str(line["seed"])]
        + [ratio_cell([line["ratios"][name]["f@20"]] if name in line["ratios"] else []) for name in names]
        for line in sorted(lines, key=lambda line: (line["data"], line["name"], line["seed"]))
        if line["ratios"].keys() - {SCAN}
    ]
    return table(["log", "system", "seed", *names], rows) if rows else ""
