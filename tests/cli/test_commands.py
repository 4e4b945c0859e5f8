"""The command line from a log to recommendations, and what it says when something is wrong."""

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from beamtree.artefact import save_artefact
from beamtree.recommender import DeepTreeRetriever
from beamtree.training.events import Event, Listener, StepDone
from tests.cli.beamtree_command import Command
from tests.serving.models import random_artefact
from tests.training.lock_holder import lock_holder

FIT = ("fit", "ratings.csv", "--items", "items.csv", "--config", "tiny.toml", "--out", "model")

SIMPLE = ["popularity", "item-to-item", "tfidf-knn", "ease"]


def test_from_a_log_to_recommendations(beamtree: Command, folder: Path) -> None:
    fitted = beamtree(*FIT, "--log-json", "events.ndjson")
    assert fitted.code == 0, fitted.err
    assert "recall" in fitted.out
    assert "popularity" in fitted.out
    assert "best simple baseline" in fitted.out
    assert not Path("model.checkpoint").exists()
    card = Path("model/README.md").read_text()
    assert all(f"\n| {name} |" in card for name in ("beam search (10)", *SIMPLE)), (
        "the card has the baselines of the report"
    )
    events = [json.loads(line) for line in Path("events.ndjson").read_text().splitlines()]
    assert {event["event"] for event in events} == {"LogPrepared", "PartsWeighed", "StepDone", "Validated"}

    evaluated = beamtree("evaluate", "model", "--log", "ratings.csv", "--json")
    metrics = json.loads(evaluated.out)["metrics"]
    assert list(metrics) == ["beam", "exact", *SIMPLE]
    inspected = json.loads(beamtree("inspect", "model", "--json").out)
    assert inspected["metrics"]["test"]["f@20"] == pytest.approx(metrics["beam"]["f@20"])
    assert inspected["facts"]["items"] == "24"

    shown = beamtree("recommend", "model", "--history", "i3,i9,i4", "-k", "5")
    assert shown.out.count("Title") == 5
    assert "Title 3 " not in shown.out

    for suffix, read in ((".parquet", pl.read_parquet), (".csv", pl.read_csv), (".ndjson", pl.read_ndjson)):
        written = beamtree("recommend", "model", "--log", "ratings.csv", "--out", f"all{suffix}", "-k", "3")
        assert written.code == 0, written.err
        table = read(folder / f"all{suffix}")
        assert table.columns == ["user_id", "item_id", "score", "rank"]
        assert len(table) == 40 * 3


def test_what_the_log_decides_is_said_when_fitting_evaluating_and_inspecting(beamtree: Command, folder: Path) -> None:
    """Eight baskets a user, of four out of twelve items each."""
    lines = [
        f"u{user},i{(user + 2 * day + item) % 12},{day}" for user in range(30) for day in range(8) for item in range(4)
    ]
    (folder / "baskets.csv").write_text("user_id,item_id,timestamp\n" + "\n".join(lines) + "\n")
    fitted = beamtree("fit", "baskets.csv", "--config", "tiny.toml", "--out", "model")
    assert fitted.code == 0, fitted.err
    seen = "of the interactions repeat an item: seen items may be recommended; retrieval.exclude_seen=true overrules"
    assert seen in fitted.message
    assert fitted.message.index(seen) < fitted.message.index("training instances")
    evaluated = beamtree("evaluate", "model", "--log", "baskets.csv")
    assert f"{seen}." in evaluated.message
    assert seen in " ".join(beamtree("inspect", "model").out.replace("│", " ").split())

    overruled = beamtree(
        *("fit", "baskets.csv", "--config", "tiny.toml", "--out", "model", "--set", "retrieval.exclude_seen=true")
    )
    assert "as retrieval.exclude_seen=true asks" in overruled.message
    sentence = json.loads(beamtree("evaluate", "model", "--log", "baskets.csv", "--json").out)["protocol"]
    assert "labels that were seen before do not count" in sentence


@pytest.mark.usefixtures("folder")
def test_a_log_without_timestamps_is_read_in_row_order_when_asked_to(beamtree: Command) -> None:
    pl.read_csv("ratings.csv").drop("timestamp").write_csv("plain.csv")
    fit = ("fit", "plain.csv", "--config", "tiny.toml", "--out", "model")
    refused = beamtree(*fit)
    assert refused.code == 1
    assert "--row-order" in refused.message
    assert beamtree(*fit, "--row-order").code == 0
    evaluated = beamtree("evaluate", "model", "--log", "plain.csv")
    assert evaluated.code == 0, evaluated.err
    assert "repeat an item" not in evaluated.message, "nobody repeats, so there is no hint"


def test_explanations(beamtree: Command, folder: Path) -> None:
    artefact = random_artefact(60, parts=("attention", "memory"))
    save_artefact(folder / "both", artefact)
    explained = DeepTreeRetriever.load(folder / "both").recommend_histories([[100, 131]], k=5, explain=True)
    shown = beamtree("recommend", "both", "--history", "100,131", "-k", "5", "--explain")
    assert shown.code == 0, shown.err
    assert all(name in shown.out for name in ("attention", "memory", "because of"))
    assert f"{explained['memory'][0]:.3f}" in shown.out
    log = pl.DataFrame({"user_id": [1, 1], "item_id": [100, 131], "timestamp": [1, 2]})
    log.write_csv("log.csv")
    for suffix, read in ((".parquet", pl.read_parquet), (".csv", pl.read_csv), (".ndjson", pl.read_ndjson)):
        beamtree("recommend", "both", "--log", "log.csv", "--out", f"why{suffix}", "-k", "5", "--explain")
        table = read(folder / f"why{suffix}")
        assert table.columns[-4:] == ["attention", "memory", "because_of", "reason_parts"]
        because: list[Any] = table["because_of"].to_list()
        if suffix == ".csv":
            because = [[] if ids is None else [int(one) for one in str(ids).split()] for ids in because]
        assert because == explained["because_of"].to_list()


@pytest.mark.usefixtures("folder")
def test_evaluation_ends_in_one_line_that_says_how_the_model_stands(
    beamtree: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    beamtree(*FIT, "--set", "data.held_out_shares=[0.1, 0.2]")
    evaluate = ("evaluate", "model", "--log", "ratings.csv")
    shown = beamtree(*evaluate)
    last = shown.out.strip().splitlines()[-1]
    assert last.startswith(("Ahead of", "Level with", "Behind")), last
    assert "best simple baseline" in last
    assert "over 8 users" in last
    assert (
        "ials, sasrec, sasrec-item-to-item, gru4rec and gru4rec-item-to-item learn, which takes minutes"
        in shown.message
    )
    assert "--baselines all" in shown.message
    assert "fit it with retrieval.exclude_seen=false" in shown.message, "the log has no repeats"
    found = json.loads(beamtree(*evaluate, "--json").out)
    verdict = found["verdict"]
    assert verdict["line"] == last
    assert (verdict["metric"], verdict["num_users"]) == ("f@20", 8)
    baselines = {name: found["metrics"][name]["f@20"] for name in SIMPLE}
    assert verdict["baseline"] == max(baselines, key=lambda name: baselines[name])
    ratio = found["metrics"]["beam"]["f@20"] / baselines[verdict["baseline"]]
    assert verdict["interval"]["estimate"] == pytest.approx(ratio - 1)
    assert verdict["interval"]["low"] <= ratio - 1 <= verdict["interval"]["high"]
    assert found["baselines"]["seconds"].keys() == set(SIMPLE)

    none = json.loads(beamtree(*evaluate, "--baselines", "none", "--json").out)
    assert (list(none["metrics"]), none["verdict"]) == (["beam", "exact"], None)
    some = json.loads(beamtree(*evaluate, "--no-exact", "--baselines", "ials,popularity", "--json").out)
    assert list(some["metrics"]) == ["beam", "popularity", "ials"]
    assert "the best baseline (" in some["verdict"]["line"]
    more = json.loads(
        beamtree(*evaluate, "--no-exact", "--baselines", "simple,ials", "--cutoffs", "10,5", "--json").out
    )
    assert list(more["metrics"]) == ["beam", *SIMPLE, "ials"]
    assert (more["beam"], more["held_out"], more["verdict"]["metric"]) == (10, "test", "f@5")
    assert {name.split("@")[1] for name in more["metrics"]["beam"]} == {"5", "10"}
    assert "ials" not in more["baselines"]["left_out"]
    validation = json.loads(beamtree(*evaluate, "--held-out", "validation", "--baselines", "none", "--json").out)
    assert validation["held_out"] == "validation"
    assert "--cutoffs takes positive integers" in beamtree(*evaluate, "--cutoffs", "5,x").message
    unknown = beamtree(*evaluate, "--baselines", "itemtoitem")
    assert unknown.code == 1
    assert "Choose from popularity, trend-popularity" in unknown.err

    monkeypatch.setattr("beamtree.baselines.registry.find_spec", lambda _: None)
    without = beamtree(*evaluate, "--json")
    assert list(json.loads(without.out)["metrics"]) == ["beam", "exact", "popularity", "item-to-item"]
    assert "pip install 'beamtree[baselines]'" in json.loads(without.out)["baselines"]["left_out"]["ease"]
    assert "Left out: ease needs scipy" in beamtree(*evaluate).err


@pytest.mark.usefixtures("folder")
def test_allow_exclude_and_users(beamtree: Command) -> None:
    beamtree(*FIT)
    wishes = ("--allow", "category=odd", "--exclude", "i1,i3", "-k", "20", "--no-exclude-seen")
    beamtree("recommend", "model", "--log", "ratings.csv", "--users", "u2,u5", "--out", "some.csv", *wishes)
    table = pl.read_csv("some.csv")
    assert set(table["user_id"]) == {"u2", "u5"}
    odd_without_two = {f"i{item}" for item in range(5, 24, 2)}
    assert set(table.filter(pl.col("user_id") == "u2")["item_id"]) == odd_without_two


def test_same_seed_gives_the_same_bytes_and_another_seed_does_not(beamtree: Command, folder: Path) -> None:
    def weights(out: str, seed: str) -> bytes:
        assert beamtree(*FIT[:-1], out, "--seed", seed).code == 0
        [file] = (folder / out).glob("weights-*.safetensors")
        return file.read_bytes()

    first = weights("first", "3")
    assert weights("second", "3") == first
    assert weights("third", "4") != first


@pytest.mark.usefixtures("folder")
def test_shortcuts_win_over_the_settings_that_they_stand_for(beamtree: Command) -> None:
    """The negatives are told three times, in the file, by --set and by their own option: the last one counts."""
    shortcuts = ("--method", "dtr-t", "--rounds", "2", "--branching", "3", "--embedding-dim", "5", "--negatives", "6")
    fitted = beamtree(*FIT, "--set", "training.negatives=5", "--set", "training.epochs=0.5", *shortcuts)
    assert fitted.code == 0, fitted.err
    settings = json.loads(beamtree("inspect", "model", "--json").out)["settings"]
    chosen = {name: settings["training"][name] for name in ("method", "rounds", "negatives", "epochs")}
    assert chosen == {"method": "dtr-t", "rounds": 2, "negatives": 6, "epochs": 0.5}
    assert (settings["tree"]["branching"], settings["model"]["embedding_dim"]) == (3, 5)
    refused = beamtree(*FIT, "--branching", "1", "--restart")
    assert refused.code == 1
    assert "tree.branching" in refused.message
    usage = beamtree("fit", "--help").out
    assert all(option in usage for option in shortcuts[::2])


def test_estimators_are_shared_and_their_share_of_the_time_is_told(beamtree: Command, folder: Path) -> None:
    sizes = ("--set", "estimator.width=4", "--set", "estimator.epochs=1")
    cached = (*FIT[:-2], "--method", "dtr-t-rl", "--estimator-cache", "estimators", *sizes)
    first = beamtree(*cached, "--out", "first")
    assert first.code == 0, first.err
    assert "estimator: " in first.message
    assert "of the time" in first.message
    second = beamtree(*cached, "--out", "second", "--set", "tree.branching=3")
    assert "estimator: reused, " in second.message
    assert len(list((folder / "estimators").iterdir())) == 1


@pytest.mark.usefixtures("folder")
def test_nothing_held_out(beamtree: Command) -> None:
    fitted = beamtree(*FIT, "--holdout", "none")
    assert fitted.code == 0, fitted.err
    assert "nothing held out" in fitted.message
    refused = beamtree("evaluate", "model", "--log", "ratings.csv")
    assert refused.code == 1
    assert "no users are held out" in refused.message


@pytest.mark.usefixtures("folder")
def test_filters_are_kept_with_the_model(beamtree: Command) -> None:
    assert beamtree(*FIT, "--min-rating", "2", "--set", "data.min_interactions=3").code == 0
    assert beamtree("evaluate", "model", "--log", "ratings.csv").code == 0
    assert json.loads(beamtree("inspect", "model", "--json").out)["settings"]["log"]["keep"] == {"min_rating": 2.0}


@pytest.mark.usefixtures("folder")
def test_all_faults_of_the_settings_come_together_before_any_work(beamtree: Command) -> None:
    refused = beamtree(
        "fit",
        "no-such-file.csv",
        "--set",
        "training.epoch=5",
        "--set",
        "model.embedding_dim=0",
        "--set",
        "forest.size=3",
    )
    assert refused.code == 1
    assert "3 settings cannot be used" in refused.message
    assert "did you mean training.epochs?" in refused.message
    assert "model.embedding_dim" in refused.message
    assert "forest is unknown" in refused.message


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fit", "no-such-file.csv"), "no-such-file.csv"),
        (("fit", "items.csv"), "no columns 'user_id', 'timestamp'"),
        (("fit", "ratings.csv", "--set", "data.min_interactions=99"), "99"),
        (("fit", "ratings.csv", "--config", "missing.toml"), "missing.toml"),
        (("fit", "ratings.csv", "--set", "epochs"), "section.key=value"),
        (("fit", "ratings.csv", "--out", "ratings.csv"), "is a file"),
        (("fit", "ratings.csv", "--out", "."), "other files"),
        (("fit", "ratings.csv", "--resume", "--restart"), "one of them"),
        (("fit", "ratings.csv", "--column", "user_id"), "OURS=THEIRS"),
        (("fit", "ratings.csv", "--set", "tree.order='category'", "--config", "tiny.toml"), "--items"),
        (("recommend", "nowhere", "--history", "i1"), "manifest.json is missing"),
        (("recommend", "nowhere"), "either --history"),
        (("inspect", "."), "manifest.json is missing"),
    ],
)
def test_errors_say_what_to_do_and_end_without_a_traceback(
    beamtree: Command, arguments: tuple[str, ...], said: str
) -> None:
    refused = beamtree(*arguments)
    assert refused.code == 1
    assert said in refused.message
    assert "Traceback" not in refused.err


def test_errors_that_need_a_model(beamtree: Command, folder: Path) -> None:
    beamtree(*FIT)
    stranger = beamtree("recommend", "model", "--history", "x1,x2", "--fallback", "error")
    assert stranger.code == 1
    assert "no item that the model knows" in stranger.message
    popular = beamtree("recommend", "model", "--history", "x1,x2", "-k", "4")
    assert popular.out.count("Title") == 4
    assert "does not know x1, x2 (its item ids are texts such as i" in popular.message
    assert "these are the most popular ones" in popular.message
    some = beamtree("recommend", "model", "--history", "i3,x1")
    assert "does not know x1 (" in some.message
    assert "skipped" in some.message
    assert "most popular" not in some.message
    empty = beamtree("recommend", "model", "--history", "", "-k", "4")
    assert empty.out.count("Title") == 4
    assert "The history is empty, so these are the most popular ones" in empty.message
    nothing = beamtree("recommend", "model", "--history", "i3", "--allow", "category=nowhere")
    assert "no item that may be recommended" in nothing.err
    assert "most popular" not in nothing.err
    assert "not in the log" in beamtree("recommend", "model", "--log", "ratings.csv", "--users", "u99").message
    assert beamtree("recommend", "model", "--log", "ratings.csv", "--users", "", "--out", "none.csv").code == 0
    assert pl.read_csv("none.csv").columns == ["user_id", "item_id", "score", "rank"]
    assert ".parquet" in beamtree("recommend", "model", "--log", "ratings.csv", "--out", "all.xlsx").message
    assert "category" in beamtree("recommend", "model", "--history", "i1", "--allow", "colour=red").message

    ratings = Path("ratings.csv").read_text().splitlines()
    Path("other.csv").write_text("\n".join(ratings[:-1]) + "\n")
    other = beamtree("evaluate", "model", "--log", "other.csv")
    assert other.code == 1
    assert "not the log that the model was fitted on" in other.message

    [weights] = (folder / "model").glob("weights-*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "damaged" in beamtree("recommend", "model", "--history", "i1").message


@contextmanager
def press_ctrl_c_at_step_three(_: Path | None) -> Iterator[Listener]:
    def listen(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == 3:
            signal.raise_signal(signal.SIGINT)

    yield listen


def test_an_unfinished_fit_is_neither_lost_nor_overwritten(
    beamtree: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert beamtree(*FIT).code == 0
    [whole] = (folder / "model").glob("weights-*.safetensors")

    with monkeypatch.context() as context:
        context.setattr("beamtree.cli.fit.fit_progress", press_ctrl_c_at_step_three)
        stopped = beamtree(*FIT[:-1], "again")
    assert stopped.code == 130
    assert "Stopped after step 3" in stopped.message
    assert "--resume" in stopped.message
    assert "--restart" in beamtree(*FIT[:-1], "again").message
    changed = beamtree(*FIT[:-1], "again", "--resume", "--set", "training.negatives=5")
    assert "training.negatives: 4 then, 5 now" in changed.message
    assert "start again: --restart" in changed.message
    assert "without --resume" not in changed.message, "that is refused"
    resumed = beamtree(*FIT[:-1], "again", "--resume")
    assert resumed.code == 0, resumed.err
    [weights] = (folder / "again").glob("weights-*.safetensors")
    assert weights.read_bytes() == whole.read_bytes()


def test_a_second_fit_into_the_same_folder_says_who_is_there(beamtree: Command, folder: Path) -> None:
    with lock_holder(folder / "model.lock") as first:
        refused = beamtree(*FIT)
        assert refused.code == 1
        assert f"Another fit writes to {folder / 'model'}: process {first.pid} on {socket.gethostname()}, since 2" in (
            refused.message
        )
        assert "give another folder with --out" in refused.message
        assert not (folder / "model").exists()
        first.kill()
        first.wait()
        assert (folder / "model.lock").exists()
        assert beamtree(*FIT).code == 0, "a lock that a killed process left behind blocks nobody"
    assert not [path.name for path in folder.iterdir() if path.suffix == ".lock"]


@pytest.mark.usefixtures("folder")
def test_resuming_from_nothing_starts_from_the_beginning(beamtree: Command) -> None:
    fitted = beamtree(*FIT, "--resume")
    assert fitted.code == 0, fitted.err
    assert "no checkpoint to resume yet" in fitted.message


@pytest.mark.usefixtures("folder")
def test_stopped_in_the_estimator_it_goes_on_from_there(beamtree: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = (*FIT, "--method", "dtr-t-rl", "--set", "estimator.epochs=3")
    stop_now = partial(nullcontext, lambda: True)
    with monkeypatch.context() as context:
        context.setattr("beamtree.recommender.fit.stop_requests", stop_now)
        stopped = beamtree(*asking)
    assert stopped.code == 130
    assert "of the estimator" in stopped.message
    resumed = beamtree(*asking, "--resume")
    assert resumed.code == 0, resumed.err
    assert "no checkpoint" not in resumed.message


@pytest.mark.usefixtures("folder")
def test_an_estimator_is_kept_only_for_a_method_that_asks_one(beamtree: Command) -> None:
    refused = beamtree(*FIT, "--method", "dtr-t", "--estimator-cache", "shared")
    assert refused.code == 1
    assert "the method here is dtr-t" in refused.message


@pytest.mark.usefixtures("folder")
def test_a_log_with_skipped_rows_is_read_the_same_way_again(beamtree: Command) -> None:
    with Path("ratings.csv").open("a", encoding="utf-8") as stream:
        stream.write("u1,,5,5\n")
    assert "row" in beamtree(*FIT).message
    assert beamtree(*FIT, "--bad-rows", "skip").code == 0
    evaluated = beamtree("evaluate", "model", "--log", "ratings.csv")
    assert evaluated.code == 0, evaluated.err


@pytest.mark.usefixtures("folder")
def test_titles_are_text_and_never_markup(beamtree: Command) -> None:
    hostile = Path("items.csv").read_text().replace("Title 5\n", "[/b] REC [bold]\n")
    Path("items.csv").write_text(hostile, encoding="utf-8")
    beamtree(*FIT)
    shown = beamtree("recommend", "model", "--history", "i3", "-k", "24", "--no-exclude-seen")
    assert "[/b] REC [bold]" in shown.out


def test_settings_and_doctor(beamtree: Command) -> None:
    assert "training.learning_rate" in beamtree("settings", "--preset", "paper").out
    assert "numpy" in beamtree("doctor").out
