"""The page of results: whose lines count, what the tables say, and that the page is what the command gives."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beamtree.config import Config
from beamtree.errors import DataError
from experiments.report import Pages, Sources, render, write
from experiments.results import Line, append_lines
from experiments.summary import Runs, Spread

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ("results/runs.jsonl", "results/trials.jsonl", "results/normalisation.jsonl", "results/remarks.md")


def line(system: str, f: float, **changes: Any) -> Line:
    """A final test line of a faithful run on ml-1m with this F@20; changes to training settings by name."""
    training: dict[str, Any] = {name: changes.pop(name) for name in ("negatives", "rounds") if name in changes}
    seed = changes.get("seed", 0)
    config = Config.preset("default", data={"protocol": "paper"}, training={"seed": seed, **training})
    base: Line = {
        "data": "ml-1m",
        "system": system,
        "role": "faithful",
        "seed": seed,
        "split": "test",
        "final": True,
        "round": 0,
        "protocol": "paper",
        "study": None,
        "note": "",
        "users": 500,
        "instances": 240_000,
        "seconds": 700.0,
        "cpu_seconds": 650.0,
        "seconds_estimator": None,
        "started": f"run {seed}",
        "exact": None,
        "metrics": {"f@20": f, "recall@20": f, "precision@20": 2 * f, "ndcg@20": 3 * f, "f@40": 1.5 * f},
        "settings": {
            "file": f"{system}.toml",
            "data": {"name": "ml-1m", "log": "x", "items": None},
            "config": config.model_dump(mode="json"),
        },
    }
    return base | changes


def trial(system: str, f: float, **changes: Any) -> Line:
    return line(system, f, **({"role": "trial", "split": "validation"} | changes))


def pages(folder: Path, runs: list[Line], trials: list[Line] | None = None) -> Pages:
    for name, lines in {"runs": runs, "trials": trials or []}.items():
        (folder / f"{name}.jsonl").unlink(missing_ok=True)
        append_lines(folder / f"{name}.jsonl", lines)
    return render(Sources.below(folder))


def page(folder: Path, runs: list[Line], trials: list[Line] | None = None) -> str:
    return pages(folder, runs, trials).results


def rows_of(text: str, first_cell: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in text.splitlines()
        if row.startswith(f"| {first_cell} |")
    ]


def test_a_row_has_the_mean_and_the_spread_over_seeds(tmp_path: Path) -> None:
    exact = {"users": 500, "beam": {"f@20": 0.09}, "scan": {"f@20": 0.1}}
    lines = [
        line("dtr-u", f, seed=seed, exact=exact, unseen={"f@20": f + 0.03}) | {"seen@20": 0.25}
        for seed, f in enumerate((0.10, 0.12, 0.14))
    ]
    text = page(tmp_path, lines)
    quality, cost = rows_of(text, "DTR(U)")
    f, recall, precision = "0.1200 ± 0.0200", "0.1200 ± 0.0200", "0.2400 ± 0.0400"
    ndcg, f_at_40, unseen = "0.3600 ± 0.0600", "0.1800 ± 0.0300", "0.1500 ± 0.0200"
    assert quality == ["DTR(U)", "3", f, recall, precision, ndcg, f_at_40, unseen, "25 %"]
    assert cost == ["DTR(U)", "240,000", "700", "650", "", "", "0.0900 ± 0.0000", "0.1000 ± 0.0000", "500"]
    assert "500 test users, protocol paper" in text


def test_ratios_are_taken_seed_by_seed_beside_the_papers(tmp_path: Path) -> None:
    lines = [line("dtr-u", 0.10), line("dtr-u", 0.20, seed=1), line("dtr-t", 0.11), line("dtr-t", 0.26, seed=1)]
    [row] = rows_of(page(tmp_path, lines), "negatives drawn down the tree beat uniform ones")
    assert row[1] == "DTR(T) / DTR(U)"
    assert row[2:] == ["1.200 ± 0.141", "", "", "1.080", "Yes, with each of 2 seeds."], "(1.1 + 1.3) / 2, .1546 / .1431"


def test_ratios_on_the_validation_users_stand_beside_those_on_the_test_users(tmp_path: Path) -> None:
    lines = [line(system, f) for system, f in (("dtr-u", 0.10), ("dtr-t", 0.11))]
    lines += [line(system, f, split="validation") for system, f in (("dtr-u", 0.20), ("dtr-t", 0.18))]
    [row] = rows_of(page(tmp_path, lines), "negatives drawn down the tree beat uniform ones")
    assert row[2:5] == ["1.100", "", "0.900"]


def test_ratios_without_seen_items_stand_beside_those_with_them(tmp_path: Path) -> None:
    lines = [line("dtr-u", 0.10, unseen={"f@20": 0.20}), line("dtr-t", 0.11, unseen={"f@20": 0.30})]
    [row] = rows_of(
        page(tmp_path, [*lines, line("dtr-t", 0.11, seed=1)]), "negatives drawn down the tree beat uniform ones"
    )
    assert row[2:4] == ["1.100", "1.500"]


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        (0.12, "Yes, with each of 2 seeds"),
        (0.09, "Undecided: with 1 of 2 seeds, and above on average"),
        (0.061, "Level within 1 %: above with 1 of 2 seeds"),
    ],
)
def test_the_verdict_asks_every_seed(tmp_path: Path, second: float, verdict: str) -> None:
    lines = [line("dtr-t", 0.10, seed=seed) for seed in (0, 1)]
    lines += [line("dtr-t-rl", 0.14), line("dtr-t-rl", second, seed=1)]
    [row] = rows_of(page(tmp_path, lines), "rectified labels help")
    assert row[-1].startswith(verdict)


def test_a_claim_that_fails_is_said_to_fail_and_unequal_instances_are_told(tmp_path: Path) -> None:
    text = page(tmp_path, [line("dtr-t", 0.10), line("sasrec", 0.11, instances=900_000)])
    [row] = rows_of(text, "the tree beats SASRec without rectified labels")
    assert row[2] == "0.909"
    assert row[-1].startswith("No with the one seed measured.")
    assert row[-1].endswith("Not at equal instances: 240,000 against 900,000.")


def test_faithful_and_best_are_never_mixed(tmp_path: Path) -> None:
    text = page(tmp_path, [line("dtr-u", 0.10), line("dtr-u", 0.20, role="best"), line("dtr-t", 0.30, role="best")])
    faithful, best = text.split("### ml-1m, best")
    assert rows_of(faithful, "DTR(U)")[0][2] == "0.1000"
    assert rows_of(best, "DTR(U)")[0][2] == "0.2000"
    assert "DTR(T) / DTR(U)" not in faithful
    assert rows_of(best, "negatives drawn down the tree beat uniform ones")[0][2] == "1.500"


def test_settings_that_differ_between_rows_are_named(tmp_path: Path) -> None:
    assert "Settings that differ" not in page(tmp_path, [line("dtr-u", 0.1), line("dtr-t", 0.1, seed=1)])
    text = page(tmp_path, [line("dtr-u", 0.1), line("dtr-t", 0.1, negatives=9)])
    assert "Settings that differ between the DTR rows: `training.negatives`." in text


def test_of_a_run_done_again_only_the_latest_counts() -> None:
    def run(started: str, *values: float) -> list[Line]:
        rounds = [
            line("dtr-u", f, split="validation", final=False, round=number, started=started)
            for number, f in enumerate(values)
        ]
        return [*rounds, line("dtr-u", values[-1], started=started)]

    runs = Runs.of([*run("first", 0.1, 0.2, 0.3), *run("second", 0.4)])
    assert [entry["metrics"]["f@20"] for entry in runs.final] == [0.4]
    assert [entry["metrics"]["f@20"] for entry in runs.rounds] == [0.4]


def test_rounds_become_a_curve_and_a_table(tmp_path: Path) -> None:
    rounds = [
        line("dtr-u", f, rounds=2, split="validation", final=False, round=number, **moved)
        for number, (f, moved) in enumerate(
            [(0.1, {"moved_share": 0.25, "score_before": -200.0, "score_after": -190.0}), (0.2, {})]
        )
    ]
    made = pages(tmp_path, [*rounds, line("dtr-u", 0.15, rounds=2)])
    text = made.results
    assert rows_of(text, "DTR(U)")[2] == ["DTR(U)", "0.1000", "0.2000", "25 %", "+5 %"]
    assert "From the first round to the last: DTR(U) +100.0 %." in text
    assert "(figures/rounds-ml-1m-faithful.svg)" in text
    assert b"Learning the tree on ml-1m (faithful) (one seed)" in made.figures["rounds-ml-1m-faithful.svg"]


def test_trials_of_many_rounds_are_shown_round_by_round(tmp_path: Path) -> None:
    def of_rounds(count: int, note: str) -> list[Line]:
        changes: dict[str, Any] = {"rounds": count, "note": note, "started": note}
        ended = [trial("dtr-t", 0.1 + number / 100, final=False, round=number, **changes) for number in range(count)]
        for entry in ended:
            del entry["users"]
        return [*ended, trial("dtr-t", 0.2, **changes)]

    text = page(tmp_path, [], [*of_rounds(2, "two"), *of_rounds(4, "four")])
    section = text.split("### Many rounds on ml-1m")[1]
    assert rows_of(section, "DTR(T), four")[0][1:5] == ["0.1000", "0.1100", "0.1200", "0.1300"]
    assert not rows_of(section, "DTR(T), two")


def test_a_study_becomes_a_curve_for_each_system(tmp_path: Path) -> None:
    trials = [
        trial(system, f, negatives=value, study={"study": "negatives", "value": value})
        for system, values in {"dtr-u": {10: 0.10, 50: 0.12}, "dtr-t": {10: 0.08}}.items()
        for value, f in values.items()
    ]
    made = pages(tmp_path, [], trials)
    assert rows_of(made.results, "validation F@20") == [["validation F@20", "10", "50"]]
    assert rows_of(made.results, "DTR(U)") == [["DTR(U)", "0.1000", "0.1200"]]
    assert rows_of(made.results, "DTR(T)") == [["DTR(T)", "0.0800", ""]]
    assert "DTR(U) is best at 50, 20.0 % above its worst at 10" in made.results
    assert "Nothing has been tried yet." in made.trials, "points of a study are not repeated there"
    drawing = made.figures["study-negatives-ml-1m.svg"]
    assert b"DTR(U)" in drawing
    assert b"DTR(T)" in drawing


def test_the_same_lines_give_the_same_bytes_and_old_figures_go(tmp_path: Path) -> None:
    trials = [trial("dtr-u", 0.1, study={"study": "alpha", "value": value}) for value in (0.0, 0.2)]
    first = pages(tmp_path, [line("dtr-u", 0.1)], trials)
    assert pages(tmp_path, [line("dtr-u", 0.1)], trials) == first
    assert max(map(len, first.figures.values())) < 60_000
    docs = tmp_path / "docs"
    write(first, docs)
    assert {file.name: file.read_bytes() for file in (docs / "figures").iterdir()} == first.figures
    write(pages(tmp_path, [line("dtr-u", 0.1)]), docs)
    assert not list((docs / "figures").iterdir())


def test_a_page_without_any_lines_says_so(tmp_path: Path) -> None:
    assert "No run has been tested yet." in render(Sources.below(tmp_path)).results


def test_spreads() -> None:
    assert Spread.of([0.5]).text() == "0.5000"
    assert Spread.of([1.0, 2.0, 3.0]) == Spread(2.0, 1.0, 3)


def as_committed(path: str) -> str | None:
    """A file of the last commit; None where it holds none, or there are no commits here."""
    shown = subprocess.run(["git", "show", f"HEAD:{path}"], cwd=ROOT, capture_output=True, text=True, check=False)
    return shown.stdout if shown.returncode == 0 else None


def as_it_lies(path: str) -> str | None:
    return (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else None


def is_current(read: Callable[[str], str | None], folder: Path) -> bool:
    """Whether the pages, and the figures on them, come from the lines beside them."""
    folder.mkdir()
    for path in RESULTS:
        text = read(path)
        if text is not None:
            (folder / Path(path).name).write_text(text, encoding="utf-8")
    try:
        made = render(Sources.below(folder))
    except DataError:
        return False
    figures = {name: drawn.decode() for name, drawn in made.figures.items()}
    assert all(map(_points_of, figures.values()))
    assert set(re.findall(r"\(figures/([^)]+)\)", made.results)) == set(figures)
    return (read("docs/results.md"), read("docs/trials.md")) == (made.results, made.trials) and all(
        _points_of(read(f"docs/figures/{name}") or "") == _points_of(drawn) for name, drawn in figures.items()
    )


def _points_of(drawing: str) -> list[str]:
    """What a drawing shows, in words; its lines and letters may differ between versions of matplotlib."""
    return re.findall(r"<dc:description>(.*?)</dc:description>", drawing, flags=re.DOTALL)


def test_the_page_is_what_the_command_gives(tmp_path: Path) -> None:
    """As committed, because runs may append lines at any moment; or as it lies here, on the way to a commit."""
    current = is_current(as_committed, tmp_path / "committed") or is_current(as_it_lies, tmp_path / "here")
    assert current, "docs/ is not up to date: python -m experiments.report"


def test_every_committed_line_has_all_its_parts() -> None:
    for path in RESULTS[:2]:
        for text in (as_it_lies(path) or "").splitlines():
            entry = json.loads(text)
            assert entry.keys() >= {"data", "system", "seed", "round", "protocol", "settings", "metrics", "split"}
            assert entry.keys() >= {"role", "instances", "seconds", "commit", "beam_width", "final", "started"}
            if path.endswith("trials.jsonl"):
                assert (entry["role"], entry["split"]) == ("trial", "validation")


def test_each_system_was_tested_once_in_each_role_with_each_seed() -> None:
    lines = [json.loads(text) for text in (as_it_lies(RESULTS[0]) or "").splitlines()]
    tested = [(e["data"], e["system"], e["role"], e["seed"]) for e in lines if e["final"] and e["split"] == "test"]
    assert len(tested) == len(set(tested))


def test_all_systems_are_seen_at_a_glance(tmp_path: Path) -> None:
    runs = [line("dtr-t", 0.10), line("dtr-t", 0.12, seed=1), line("sasrec", 0.11), line("dtr-t", 0.2, role="best")]
    section = (
        page(tmp_path, [*runs, line("sasrec", 0.3, data="amazon-8cat")]).split("## At a glance")[1].split("## ")[0]
    )
    assert rows_of(section, "ml-1m, faithful") == [["ml-1m, faithful", "0.1100 ± 0.0141", "0.1100"]]
    assert rows_of(section, "ml-1m, best") == [["ml-1m, best", "0.2000", ""]]
    assert section.index("ml-1m, faithful") < section.index("ml-1m, best") < section.index("amazon-8cat, faithful")


EQUAL_TIME = "#### Equal time on ml-1m, histories of 20, 30 negatives"


def timed(system: str, f: float, seconds: float, **changes: Any) -> list[Line]:
    """A faithful run that took so long: its final lines on the validation and the test users."""
    run = line(system, f, cpu_seconds=seconds, **changes)
    return [run | {"split": "validation"}, run | {"metrics": dict.fromkeys(run["metrics"], 9.0)}]


def longer(system: str, f: float, seconds: float, **changes: Any) -> Line:
    """A run of the study of time."""
    study = {"study": "time", "value": 900.0}
    return trial(system, f, cpu_seconds=seconds, study=study, instances=900_000, **changes)


def test_methods_are_compared_at_equal_time_on_the_validation_users(tmp_path: Path) -> None:
    runs = [entry for seed in (0, 1) for entry in timed("dtr-t", 0.10, 300.0, seed=seed)]
    runs += [entry for seed, f in ((0, 0.12), (1, 0.14)) for entry in timed("dtr-t-rl", f, 900.0, seed=seed)]
    trials = [longer("dtr-t", 0.15, 880.0), longer("dtr-t", 0.16, 940.0, seed=1)]
    made = pages(tmp_path, runs, trials)
    text = made.results
    section = text.split(EQUAL_TIME)[1].split("## ")[0]
    assert [row[2:5] for row in rows_of(section, "DTR(T)")] == [
        ["240,000", "300", "0.1000 ± 0.0000"],
        ["900,000", "910", "0.1550 ± 0.0071"],
    ]
    [row] = rows_of(section, "rectified labels help")
    assert row[1:] == ["DTR(T-RL) / DTR(T)", "900 and 910", "0.838 ± 0.053", "No, with none of 2 seeds."]
    assert "time-ml-1m-20-30.svg" in made.figures
    assert "## Sensitivity" not in text


def test_times_that_differ_are_not_called_equal(tmp_path: Path) -> None:
    runs = [*timed("dtr-t", 0.10, 300.0), *timed("dtr-t-rl", 0.17, 1_000.0)]
    text = page(tmp_path, runs, [longer("dtr-t", 0.15, 880.0)])
    section = text.split(EQUAL_TIME)[1].split("## ")[0]
    assert len(rows_of(section, "DTR(T)")) == 2
    assert not rows_of(section, "rectified labels help")


def test_who_is_ahead_in_less_time_is_ahead_at_equal_time(tmp_path: Path) -> None:
    runs = [*timed("dtr-t", 0.14, 300.0), *timed("dtr-t-rl", 0.12, 1_000.0), *timed("dtr-u", 0.10, 1_200.0)]
    section = page(tmp_path, runs, [longer("dtr-t", 0.15, 600.0)]).split(EQUAL_TIME)[1].split("## ")[0]
    [row] = rows_of(section, "rectified labels help")
    assert row[2:] == ["1,000 and 600", "0.800", "No with the one seed measured."], "the nearest of two that settle it"
    [row] = rows_of(section, "negatives drawn down the tree beat uniform ones")
    assert row[2:4] == ["600 and 1,200", "1.500"]


def test_networks_of_other_sizes_are_compared_among_themselves(tmp_path: Path) -> None:
    small = [longer(system, f, 900.0, negatives=12) for system, f in (("dtr-u", 0.10), ("dtr-t", 0.11))]
    text = page(tmp_path, [*timed("dtr-u", 0.12, 900.0), *timed("dtr-t", 0.15, 900.0)], small)
    of_usual, of_small = text.split(EQUAL_TIME)[1].split("\n## ")[0].split("#### ")
    assert [
        rows_of(part, "negatives drawn down the tree beat uniform ones")[0][3] for part in (of_usual, of_small)
    ] == ["1.250", "1.100"]
    assert of_small.startswith("Equal time on ml-1m, histories of 20, 12 negatives")


def test_without_longer_runs_there_is_no_word_of_equal_time(tmp_path: Path) -> None:
    assert "Equal time" not in page(tmp_path, timed("dtr-t", 0.10, 300.0))


def looked_into(system: str, nats: float, *, labels: bool = False, **changes: Any) -> list[Line]:
    """A faithful run whose tree of two levels, the second of them sampled, was looked into."""
    level = {"sampled": False, "kl_uniform": 0.0, "kl_top_down": 0.0, "child_violations": 0.25, "path_violations": 0.1}
    leaves = {"sampled": True, "kl_uniform": 4 * nats, "kl_top_down": nats} | dict.fromkeys(
        ("child_violations", "path_violations")
    )
    theory = {
        "users": 200,
        "levels": [{"level": 1, "nodes": 2} | level, {"level": 2, "nodes": 4_000} | leaves],
        "labels": {"positive": [0.5, 1.0], "changed": {"1e-07": 0.001, "1e-02": 0.4}} if labels else None,
    }
    run = line(system, 0.1, **changes)
    return [run | {"split": "validation", "theory": theory}, run]


def test_trained_trees_are_looked_into_level_by_level(tmp_path: Path) -> None:
    runs = [*looked_into("dtr-t-rl", 0.4, labels=True), *looked_into("dtr-t", 0.1), *looked_into("dtr-t", 0.3, seed=1)]
    section = page(tmp_path, runs).split("#### What the theory is about, on ml-1m")[1].split("## ")[0]
    assert rows_of(section, "level")[0][2:] == [
        "DTR(T): uniform",
        "DTR(T): down the tree",
        "DTR(T-RL): uniform",
        "DTR(T-RL): down the tree",
    ]
    assert rows_of(section, "2") == [["2", "4,000", "0.800", "0.200", "1.600", "0.400"]], "a whole level has no draws"
    assert rows_of(section, "1") == [["1", "2", "25.0 %", "10.0 %", "25.0 %", "10.0 %"]], "leaves have none below"
    assert "from level 1 to the leaves: 50.0 %, 100.0 %." in section
    assert "off by as much: 0.1 % at 1e-07, 40.0 % at 1e-02." in section
    assert "(DTR(T) 2, DTR(T-RL) 1)" in section


def test_what_a_large_tree_was_not_asked_takes_no_column(tmp_path: Path) -> None:
    runs = looked_into("dtr-t", 0.1)
    runs[0]["theory"]["levels"][0]["path_violations"] = None
    section = page(tmp_path, runs).split("#### What the theory is about, on ml-1m")[1].split("## ")[0]
    assert rows_of(section, "level")[1] == ["level", "nodes", "DTR(T): all"]
    assert rows_of(section, "1") == [["1", "2", "25.0 %"]]


def test_runs_that_were_not_looked_into_say_nothing_of_the_theory(tmp_path: Path) -> None:
    assert "theory" not in page(tmp_path, timed("dtr-t", 0.10, 300.0))


def test_faithful_rows_say_where_they_are_not_the_papers(tmp_path: Path) -> None:
    text = page(tmp_path, [line("dtr-t", 0.1, negatives=7), line("dtr-t", 0.1, negatives=8, role="best")])
    [sentence] = [row for row in text.splitlines() if "that are not the paper's" in row]
    assert sentence.startswith("Settings that are not the paper's, in brackets. DTR(T): ")
    assert "`training.negatives` 7 (70)" in sentence
    assert "`model.windows` [10,5,2,1,1,1] ([20,20,10,10,2,2,2,1,1,1])" in sentence
    assert "embedding_dim" not in sentence, "24, as in the paper"


def test_what_only_some_trees_have_is_told_apart(tmp_path: Path) -> None:
    text = page(tmp_path, [line("dtr-t", 0.1, negatives=7), line("dtr-t-rl", 0.1, negatives=7)])
    [sentence] = [row for row in text.splitlines() if "that are not the paper's" in row]
    shared, of_one = sentence.split(". DTR(T-RL): ")
    assert "DTR(T), DTR(T-RL): " in shared
    assert "`training.negatives` 7 (70)" in shared
    assert "estimator." not in shared
    assert "`estimator.width`" in of_one
    assert "training." not in of_one


def test_trials_stand_on_a_page_of_their_own_best_first(tmp_path: Path) -> None:
    trials = [trial("dtr-t", f, seed=seed, negatives=9, note="with nine") for seed, f in enumerate((0.1, 0.12))]
    trials += [trial("dtr-t", 0.2, negatives=8, note="with eight"), trial("dtr-u", 0.3, note="before: faithful run")]
    made = pages(tmp_path, [line("dtr-t", 0.1)], trials)
    now, before = made.trials.split("later ones have replaced")
    assert [row[2:4] + row[-1:] for row in rows_of(now, "dtr-t")] == [
        ["1", "0.2000", "with eight"],
        ["2", "0.1100 ± 0.0141", "with nine"],
    ]
    assert [row[-1] for row in rows_of(before, "dtr-u")] == ["faithful run"]
    assert "with eight" not in made.results


def test_the_estimators_share_of_the_time_is_told(tmp_path: Path) -> None:
    run = line("dtr-t-rl", 0.1, seconds=400.0, seconds_estimator=100.0, stages={"estimator_seconds": 80.0})
    _, row = rows_of(page(tmp_path, [run]), "DTR(T-RL)")
    assert row[2:6] == ["400", "650", "100 (25 %)", "20 (6 %)"], "with it kept, labels are 20 of 320 seconds"
