"""Another catalogue for a saved model, from the command line."""

import shutil
from pathlib import Path

import polars as pl
import pytest

from beamtree.artefact import load_artefact
from beamtree.catalogue.folder import UPDATE_LOCK, claimed_for_update
from beamtree.recommender import DeepTreeRetriever
from beamtree.training.exclusive import claimed_folder
from tests.cli.beamtree_command import Command
from tests.serving.models import save_model
from tests.small import small_config, two_group_log


@pytest.fixture
def model(folder: Path) -> Path:
    save_model(folder / "model", 60, parts=("tower", "memory"))
    (folder / "new.csv").write_text("item_id,title,year,price\n900,Nine hundred,2020,3\n901,Another,2021,4\n")
    return folder / "model"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_items_are_added_and_removed_where_the_model_is(beamtree: Command, model: Path) -> None:
    done = beamtree("update", "model", "--items", "new.csv", "--remove", "100,101")
    assert done.code == 0, done.err
    assert "Added 2 items." in done.err
    assert "Removed 2 items." in done.err
    assert "The tree grew to 64 leaves on 6 levels." in done.err
    assert str(model) in done.out.replace("\n", "")
    now = DeepTreeRetriever.load(model)
    assert now.recommender.artefact.item_table.row(60) == (900, None, "Nine hundred", 2020, None, 3.0)
    found = now.recommend_histories([[100, 102, 900]], k=100, exclude_seen=False)["item_id"].to_list()
    assert sorted(found) == [*range(102, 160), 900, 901]
    assert "60 items" in (model / "README.md").read_text()
    assert not (model / UPDATE_LOCK).exists()
    (model.parent / "back.csv").write_text("item_id\n101\n")
    assert "Reinstated 1 item." in beamtree("update", "model", "--items", "back.csv").err


def test_another_folder_leaves_the_model_as_it_is(beamtree: Command, model: Path) -> None:
    before = contents(model)
    assert beamtree("update", "model", "--remove", "100", "--out", "other").code == 0
    assert contents(model) == before
    assert load_artefact(model.parent / "other").tree.removed.tolist() == [0]


def test_a_text_column_takes_numbers_of_a_csv_file(beamtree: Command, model: Path) -> None:
    artefact = load_artefact(model)
    (model.parent / "named.csv").write_text("sku,title\n950,1984\n")
    done = beamtree("update", "model", "--items", "named.csv", "--item-column", "item_id=sku")
    assert done.code == 0, done.err
    assert load_artefact(model).item_table.row(-1)[:3] == (950, None, "1984")
    assert artefact.tree.num_items == 60


def test_a_mapped_column_may_be_missing_among_new_items(beamtree: Command, model: Path) -> None:
    names = ("--item-column", "item_id=sku", "--item-column", "category=kind", "--item-column", "title=name")
    (model.parent / "named.csv").write_text("sku,name\n950,Tea\n")
    done = beamtree("update", "model", "--items", "named.csv", *names)
    assert done.code == 0, done.err
    assert load_artefact(model).item_table.row(-1)[:3] == (950, None, "Tea")
    (model.parent / "named.csv").write_text("name\nTea\n")
    assert "no column 'sku' (as item_id)" in beamtree("update", "model", "--items", "named.csv", *names).message


def test_what_cannot_be_done_changes_nothing(beamtree: Command, model: Path) -> None:
    tables = {
        "exists": "item_id,title\n900,x\n105,y\n",
        "unknown": "item_id,colour\n900,red\n",
        "type": "item_id,year\n900,long ago\n",
        "twice": "item_id\n900\n900\n",
        "empty": "item_id\n",
        "ids": "item_id\nabc\n",
    }
    for name, text in tables.items():
        (model.parent / f"{name}.csv").write_text(text)
    (model.parent / "notes").mkdir()
    (model.parent / "notes" / "a.txt").touch()
    before = contents(model)
    for arguments, message in (
        (["--items", "exists.csv"], "1 of 2 items exist already, the first is 105"),
        (["--items", "unknown.csv"], "columns that the model was not fitted with: colour. It knows item_id,"),
        (["--items", "type.csv"], "Expected the column year as Int64, as the model was fitted with it, got String"),
        (["--items", "twice.csv"], "item_id 900 occurs 2 times"),
        (["--items", "empty.csv"], "no rows"),
        (["--items", "ids.csv"], "Expected the column item_id as Int64"),
        (["--items", "missing.csv"], "missing.csv"),
        (["--remove", "100,nope"], "does not know nope (its item ids are integers such as"),
        (["--items", "new.csv", "--remove", "9999"], "does not know 9999"),
        (["--remove", ",".join(map(str, range(100, 160)))], "All 60 items would be removed"),
        ([], "nothing to do: give new rows with --log LOG, new items with --items TABLE"),
        (["--item-column", "item_id=sku", "--remove", "100"], "give that too, with --items TABLE"),
        (["--remove", "100", "--out", "notes"], "holds other files and no beamtree model"),
    ):
        refused = beamtree("update", "model", *arguments)
        assert refused.code == 1, arguments
        assert message in refused.message
        assert contents(model) == before, arguments
    assert beamtree("update", "nowhere", "--remove", "100").code == 1
    assert beamtree("update", "model", "--items", "type.csv", "--out", "nowhere").code == 1
    assert not (model.parent / "nowhere").exists()


def test_one_writer_at_a_time(beamtree: Command, model: Path) -> None:
    with claimed_for_update(model):
        before = contents(model)
        refused = beamtree("update", "model", "--remove", "100")
        assert refused.code == 1
        assert "Another update writes to model: process" in refused.message
        assert contents(model) == before
    assert beamtree("update", "model", "--remove", "100").code == 0


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was fitted with tables of items and users, a context column and weighed event types."""
    folder = tmp_path_factory.mktemp("described") / "model"
    rows = [
        (user, (7 * user + place) % 15, 10 * place + 1, "view", hour)
        for user in range(20)
        for place, hour in enumerate([8, 9, 10, 11])
    ]
    log = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "event_type", "hour"], orient="row")
    items = pl.DataFrame({"item_id": range(15), "price": [float(item) for item in range(15)]})
    users = pl.DataFrame({"user_id": range(20), "age": range(20, 40)})
    config = small_config(
        model={"parts": ["memory"]},
        log={"features": {"context.hour": "number"}, "event_weights": {"view": 1.0, "buy": 5.0}},
    )
    DeepTreeRetriever(config).fit(log, items, users=users, progress=False).save(folder)
    return folder


def test_bad_new_rows_change_nothing(beamtree: Command, folder: Path, described: Path) -> None:
    for name in ("model", "model.state"):
        shutil.copytree(described.with_name(name), folder / name)
    files = {
        "old.csv": "user_id,item_id,timestamp,event_type,hour\n1,2,31,view,8\n",
        "good.csv": "user_id,item_id,timestamp,event_type,hour\n1,2,100,view,8\n",
        "hours.csv": "user_id,item_id,timestamp,event_type,hour\n1,2,100,view,noon\n",
        "events.csv": "user_id,item_id,timestamp,event_type,hour\n1,2,100,wish,8\n",
        "ids.csv": "user_id,item_id,timestamp,event_type,hour\nann,2,100,view,8\n",
        "columns.csv": "user_id,item,timestamp,event_type,hour\n1,2,100,view,8\n",
        "cheap.csv": "item_id,price\n77,cheap\n",
        "colour.csv": "item_id,colour\n77,red\n",
        "ages.csv": "user_id,age\n1,young\n",
        "towns.csv": "user_id,town\n1,Oslo\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for arguments, message in (
        (["--log", "old.csv"], "Expected rows after 31, the newest time that the model has learned from"),
        (["--log", "hours.csv"], "Expected the column hour as Int64, as the model was fitted with it, got 'noon'"),
        (["--log", "events.csv"], "event_weights says nothing of 'wish'"),
        (["--log", "ids.csv"], "Expected user ids like 0, as the model knows them, got 'ann'"),
        (["--log", "columns.csv"], "item_id"),
        (["--log", "good.csv", "--items", "cheap.csv"], "Expected the column price as Float64"),
        (["--log", "good.csv", "--items", "colour.csv"], "columns that the model was not fitted with: colour"),
        (["--log", "good.csv", "--users", "ages.csv"], "Expected the column age as Int64"),
        (["--log", "good.csv", "--users", "towns.csv"], "a column that the model was not fitted with: town"),
        (["--log", "good.csv", "--remove", "99"], "does not know 99"),
    ):
        refused = beamtree("update", "model", *arguments)
        assert refused.code == 1, arguments
        assert message in refused.message
        after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert after == before, arguments
    assert beamtree("update", "model", "--log", "good.csv", "--force").code == 0


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a small log whose item column has another name, with what it needs to go on beside it."""
    folder = tmp_path_factory.mktemp("fitted") / "model"
    config = small_config(model={"parts": ["memory"]}, log={"columns": {"items.item_id": "sku"}})
    DeepTreeRetriever(config).fit(two_group_log(), progress=False).save(folder)
    return folder


@pytest.fixture
def shop(folder: Path, fitted: Path) -> Path:
    shutil.copytree(fitted, folder / "model")
    shutil.copytree(fitted.with_name("model.state"), folder / "model.state")
    (folder / "new.csv").write_text("user_id,item_id,timestamp\na00,a1,100\na00,b1,101\nnew,a1,102\na01,a777,103\n")
    (folder / "items.csv").write_text("sku,title\na777,Seven\n")
    return folder / "model"


def test_new_rows_are_learned_and_the_model_is_replaced(beamtree: Command, shop: Path) -> None:
    done = beamtree("update", "model", "--log", "new.csv", "--items", "items.csv", "--force")
    assert done.code == 0, done.err
    assert "4 new rows" in done.err
    assert "1 new users, 1 new items" in done.err
    now = DeepTreeRetriever.load(shop)
    assert now.recommender.artefact.item_table.row(-1)[0::2][:2] == ("a777", "Seven")
    assert not shop.with_name("model.checkpoint").exists()
    again = beamtree("update", "model", "--log", "new.csv")
    assert again.code == 1
    assert "the newest time that the model has learned from" in again.message


def test_an_update_that_does_worse_is_refused(beamtree: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamtree.updating.update.Verdict.is_worse", True)
    before = contents(shop)
    done = beamtree("update", "model", "--log", "new.csv")
    assert done.code == 1
    assert "so nothing was changed" in done.message
    assert contents(shop) == before


def test_options_of_new_rows_need_new_rows(beamtree: Command, shop: Path) -> None:
    done = beamtree("update", str(shop), "--items", "items.csv", "--force", "--min-rating", "3")
    assert done.code == 1
    assert "--min-rating and --force are about new rows" in done.message


def test_a_model_in_another_folder_can_go_on_as_well(beamtree: Command, shop: Path) -> None:
    assert beamtree("update", "model", "--remove", "a1", "--out", "next").code == 0
    done = beamtree("update", "next", "--log", "new.csv", "--force")
    assert done.code == 0, done.err
    now = DeepTreeRetriever.load(shop.with_name("next")).recommender.artefact
    assert now.tree.num_items == 21
    assert now.items.decode(now.tree.removed).to_list() == ["a1"]


def test_a_fit_into_the_same_folder_is_not_overtaken(beamtree: Command, shop: Path) -> None:
    before = contents(shop)
    with claimed_folder(shop.absolute(), otherwise=""):
        done = beamtree("update", "model", "--log", "new.csv", "--force")
    assert done.code == 1
    assert "Another fit writes to" in done.message
    assert contents(shop) == before
