import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from beamtree.cli.data import app
from beamtree.data.public import fetch
from beamtree.errors import DataError, SettingsError

LOG = "uid,item_id,timestamp,stars,kind\n" + "".join(
    f"{user},{item},{1_500_000_000 + 60 * item},{item % 5 + 1},{'buy' if item % 2 else 'view'}\n"
    for user in range(3)
    for item in range(10 * (user + 1))
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEAMTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def described(*arguments: str) -> dict[str, Any]:
    result = run("describe", *arguments, "--column", "user_id=uid", "--json")
    assert result.exception is None, result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_list_shows_every_data_set_and_which_are_here(tmp_path: Path) -> None:
    shown = run("list").stdout
    for name in ("ml-100k", "ml-1m", "ml-10m", "mind-small", "amazon-books", "tmall", "complete-journey"):
        assert name in shown
    assert "yes" not in shown
    assert str(tmp_path / "cache") in shown.replace("\n", "")
    (tmp_path / "clicks.csv").write_text("1,2,3,pv,4\n")
    fetch("tmall", original=tmp_path / "clicks.csv")
    assert "yes" in run("list").stdout


def test_get_reads_originals_and_prints_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "clicks.csv").write_text("1,2,3,pv,4\n")
    result = run("get", "tmall", "--from", str(tmp_path / "clicks.csv"))
    assert result.exit_code == 0
    path = tmp_path / "cache" / "data" / "tmall" / "interactions.parquet"
    assert path.is_file()
    assert f"interactions  {path}\n" in result.stdout
    assert f"next: beamtree fit {path} --items {path.parent / 'items.parquet'}\n" in result.stdout


def test_get_without_a_source_tells_the_way_by_hand() -> None:
    result = run("get", "tmall")
    assert result.exit_code != 0
    assert isinstance(result.exception, DataError)
    assert "data get tmall --from PATH" in str(result.exception)


def test_describe_prints_tables_to_read(log: str) -> None:
    result = run("describe", log, "--column", "user_id=uid")
    assert result.exit_code == 0
    for text in ("60 rows read", "History lengths", "8-15", "16-31", "Popularity", "2017-07-14 02:40:00"):
        assert text in result.stdout
    shown = " ".join(result.stdout.replace("│", " ").split())
    assert "interactions kept by 2+ interactions 60 (100.0%)" in shown
    assert "users to hold out from, 10+ interactions 3" in shown
    assert "users that are only learned from 0" in shown
    kept = " ".join(run("describe", log, "--column", "user_id=uid", "--min-interactions", "15").stdout.split())
    assert "50 (83.3%)" in kept


def test_describe_as_json(log: str) -> None:
    found = described(log)
    sizes = ("users", "items", "interactions")
    assert [found["profile"][name] for name in sizes] == [3, 30, 60]
    assert [found["kept"][name] for name in sizes] == [3, 30, 60]
    assert found["min_interactions"] == 2
    assert [found["kept"][name] for name in ("long_history", "long_users")] == [10, 3]
    assert [described(log, "--min-interactions", "30")["kept"][name] for name in sizes] == [1, 30, 30]
    assert described(log, "--min-interactions", "31")["kept"] is None


def test_describe_says_what_a_fit_would_decide(log: str, tmp_path: Path) -> None:
    shown = " ".join(run("describe", log, "--column", "user_id=uid").stdout.split())
    assert "0.0% of the interactions repeat an item: seen items are not recommended" in shown
    baskets = tmp_path / "baskets.csv"
    lines = [f"{user},{item},{day}" for user in range(2) for day in range(3) for item in range(9)]
    baskets.write_text("user_id,item_id,timestamp\n" + "\n".join(lines) + "\n")
    shown = " ".join(run("describe", str(baskets)).stdout.split())
    assert "66.7% of the interactions repeat an item: seen items may be recommended" in shown
    assert "100.0% of the rows share user and time with another and are sorted by item: shuffled by seed 0" in shown
    mixed = tmp_path / "mixed.csv"
    lines = [f"{user},{item},{item}" for user in range(130) for item in range(20 if user < 105 else 3)]
    mixed.write_text("user_id,item_id,timestamp\n" + "\n".join(lines) + "\n")
    shown = " ".join(run("describe", str(mixed)).stdout.replace("│", " ").split())
    assert "users to hold out from, 15+ interactions 105 users that are only learned from 25" in shown
    assert "105 of 130 users have at least 15 interactions: only they can be held out" in shown
    assert "A fit would say" not in run("describe", str(baskets), "--min-interactions", "99").stdout


def test_describe_reads_a_log_without_timestamps_when_asked_to(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("user_id,item_id\n1,7\n1,7\n1,5\n")
    refused = run("describe", str(path))
    assert isinstance(refused.exception, DataError)
    assert "--row-order" in str(refused.exception)
    result = run("describe", str(path), "--row-order", "--json")
    assert json.loads(result.stdout)["profile"]["repeat_share"] == pytest.approx(1 / 3)
    both = run("describe", str(path), "--row-order", "--since", "3")
    assert isinstance(both.exception, SettingsError)


def test_describe_takes_the_filters_of_reading(log: str) -> None:
    assert described(log, "--event-type", "kind=buy")["profile"]["interactions"] == 30
    assert described(log, "--event-type", "kind=buy,view")["profile"]["interactions"] == 60
    assert described(log, "--column", "rating=stars", "--min-rating", "5")["profile"]["interactions"] == 12
    assert described(log, "--since", "2017-07-14T02:50:00", "--until", "1500001200")["profile"]["interactions"] == 20


def test_describe_lists_bad_rows_when_told_to_skip(log: str, tmp_path: Path) -> None:
    with Path(log).open("a") as file:
        file.write("9,,5,1,buy\n")
    assert isinstance(run("describe", log, "--column", "user_id=uid").exception, DataError)
    rejects = tmp_path / "bad.csv"
    result = run("describe", log, "--column", "user_id=uid", "--bad-rows", "skip", "--rejects", str(rejects))
    assert "1 bad row left out, listed in" in result.stdout
    assert "61,item_id" in rejects.read_text()


def test_describe_knows_public_names(tmp_path: Path) -> None:
    (tmp_path / "clicks.csv").write_text("1,2,3,pv,4\n1,3,3,pv,5\n")
    fetch("tmall", original=tmp_path / "clicks.csv")
    result = run("describe", "tmall", "--json")
    assert json.loads(result.stdout)["profile"]["interactions"] == 2


@pytest.mark.parametrize("text", ["user_id", "=uid", "user_id="])
def test_a_misspelt_column_is_refused(text: str, log: str) -> None:
    result = run("describe", log, "--column", text)
    assert isinstance(result.exception, SettingsError)
    assert f"got {text!r}" in str(result.exception)
