"""Figures in the remarks are looked up among the lines."""

import pytest

from beamtree.errors import DataError
from experiments.remarks import fill_in
from experiments.results import Line
from experiments.summary import Runs
from tests.experiments.test_report import line, trial


def filled(text: str, runs: list[Line] | None = None, trials: list[Line] | None = None) -> str:
    return fill_in(text, runs=Runs.of(runs or []), trials=Runs.of(trials or []))


def both_splits(system: str, f: float, **changes: object) -> list[Line]:
    run = line(system, f, unseen={"f@20": 2 * f}, **changes) | {"seen@20": 0.25}
    return [run | {"split": "validation"}, run | {"metrics": run["metrics"] | {"f@20": 3 * f}}]


def test_a_file_stands_for_the_mean_over_its_seeds() -> None:
    runs = [*both_splits("dtr-t", 0.10), *both_splits("dtr-t", 0.12, seed=1)]
    assert filled("has {dtr-t}, tested {test dtr-t}.", runs) == "has 0.1100 ± 0.0141, tested 0.3300 ± 0.0424."
    assert filled("{unseen dtr-t} and {seen dtr-t}", runs) == "0.2200 ± 0.0283 and 25 %"


def test_ratios_are_taken_seed_by_seed() -> None:
    runs = [*both_splits("dtr-t", 0.10), *both_splits("dtr-t", 0.12, seed=1), *both_splits("dtr-u", 0.08)]
    assert filled("{dtr-t / dtr-u} {test dtr-t / dtr-u}", runs) == "1.250 1.250", "seed 0 alone has both"


def test_points_of_a_study_systems_and_rounds() -> None:
    trials = [
        trial(system, f, negatives=value, study={"study": "negatives", "value": value})
        | {"settings": trial(system, f, negatives=value)["settings"] | {"file": "study.toml"}}
        for system, f, value in (("dtr-u", 0.1, 10), ("dtr-t", 0.2, 10), ("dtr-t", 0.3, 30))
    ]
    assert filled("{study dtr-u} {study dtr-t 30}", trials=trials) == "0.1000 0.3000"
    ended = [
        line("dtr-u", f, split="validation", final=False, round=number, started="once")
        for number, f in enumerate((0.1, 0.2))
    ]
    assert filled("{dtr-u round 2}", [*ended, line("dtr-u", 0.2, started="once")]) == "0.2000"


def test_replaced_runs_are_meant_by_their_note_alone() -> None:
    trials = [trial("dtr-t", 0.1, note="before: old"), trial("dtr-t", 0.2, negatives=9)]
    assert filled("{dtr-t} {dtr-t | before: old}", trials=trials) == "0.2000 0.1000"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{nothing}", r"\{nothing\} in the remarks is not among the lines"),
        ("{dtr-t}", "could be several"),
        ("{dtr-t of what}", "'of' is no system"),
        ("{dtr-t 8 / dtr-u}", "in the remarks is not among the lines"),
        ("{dtr-u / dtr-u / dtr-u}", "more than two sides"),
        ("{unseen dtr-u}", "was not measured"),
        ("{ | before: old}", "names no settings file"),
    ],
)
def test_what_the_lines_do_not_have_is_refused(text: str, message: str) -> None:
    trials = [trial("dtr-t", 0.1), trial("dtr-t", 0.2, negatives=9), trial("dtr-u", 0.1, seed=7)]
    with pytest.raises(DataError, match=message):
        filled(text, trials=trials)
