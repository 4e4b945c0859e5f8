"""The accuracy of the default is that of pairs of fits, looked up in lines of results."""

from typing import Any

from benchmarks.accuracy import accuracy_of_default, measured_accuracy


def line(parts: list[str], f: float, **changes: Any) -> dict[str, Any]:
    """A line of results/baselines.jsonl, as far as it matters here."""
    settings = {
        "data": {"protocol": changes.pop("protocol", "clean")},
        "model": {"parts": parts, "attention_levels": changes.pop("attention_levels", None)},
        "training": {"method": changes.pop("method", "dtr-t"), "rounds": changes.pop("rounds", 1)},
    }
    seconds = {"beamtree": changes.pop("seconds", 100.0)}
    fields = {"data": "ml-1m", "seed": 0, "folds": None, "metrics": {"beamtree": {"f@20": f}}, "seconds": seconds}
    return {**fields, "settings": settings, **changes}


DEFAULT, ALL_LEVELS = ["tower", "memory"], ["attention", "tower", "memory"]


def test_the_means_over_the_seeds_of_both_are_compared() -> None:
    lines = [
        line(DEFAULT, 0.18),
        line(DEFAULT, 0.20, seed=1),
        line(ALL_LEVELS, 0.19),
        line(ALL_LEVELS, 0.21, seed=1, seconds=300.0),
    ]
    accuracy = accuracy_of_default(lines)
    assert accuracy.ratio == 0.19 / 0.20
    assert accuracy.basis == (
        "ml-1m, f@20, test users, clean protocol with seed 0, clean protocol with seed 1: tower + memory (100 s) over "
        "attention on all levels + tower + memory (200 s)"
    )


def test_fits_that_are_no_pair_are_left_out() -> None:
    others = [
        line(ALL_LEVELS, 0.2, seed=1),
        line(ALL_LEVELS, 0.2, protocol="paper"),
        line(ALL_LEVELS, 0.2, attention_levels=1),
        line(ALL_LEVELS, 0.2, data="globo"),
        line(ALL_LEVELS, 0.2, folds=10),
        line(ALL_LEVELS, 0.2, rounds=3),
        line(ALL_LEVELS, 0.2, method="dtr-u"),
        line(["attention"], 0.2),
    ]
    accuracy = accuracy_of_default([line(DEFAULT, 0.18), *others])
    assert accuracy.ratio is None
    assert accuracy.basis.startswith("no result lines yet on ml-1m")


def test_the_lines_of_the_repository_can_be_read() -> None:
    assert "ml-1m" in measured_accuracy().basis
