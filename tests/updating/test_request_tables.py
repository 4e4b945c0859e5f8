"""User tables and contexts, from the fit to saved models, requests and updates."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import DataError, InputError, SettingsError
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.request import RecommendRequest
from beamtree.updating.rows import replaced_users
from tests.small import small_config

USERS = pl.DataFrame({"user_id": [f"u{number:02}" for number in range(30)], "city": ["Oslo", "Rome"] * 15})


def log_of(*, first_time: int, devices: tuple[Any, Any] = ("phone", "tablet"), users: int = 30) -> pl.DataFrame:
    rows = [
        (f"u{user:02}", f"i{(user + place) % 12}", first_time + place, devices[place % 2])
        for user in range(users)
        for place in range(6)
    ]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "device"], orient="row")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = small_config(model={"parts": ("memory",)}, log={"features": {"context.device": "category"}})
    model = DeepTreeRetriever(config).fit(log_of(first_time=0), users=USERS, progress=False)
    place = tmp_path_factory.mktemp("models") / "shop"
    model.save(place)
    return place


def test_a_saved_model_knows_what_it_reads_and_holds_no_rows_of_users(folder: Path) -> None:
    read = DeepTreeRetriever.load(folder).recommender.artefact.request_features
    assert [column.name for column in read.user.columns] == ["city"]
    assert [column.values for column in read.context.columns] == [("phone", "tablet")]
    assert not any("u07" in path.read_bytes().decode(errors="replace") for path in folder.iterdir())


def test_requests_are_checked_before_anything_is_searched(folder: Path) -> None:
    recommender = DeepTreeRetriever.load(folder).recommender
    request = RecommendRequest(history=["i1"], user_features={"city": "Oslo"}, context={"device": "phone"})
    assert recommender.recommend([request, RecommendRequest(history=["i2"])])[0].items
    encoded = recommender.encode([request, RecommendRequest(history=["i2"])])
    asked = recommender.batch(encoded)
    assert asked.user_features is not None
    assert asked.context is not None
    assert asked.user_features.weights.sum(axis=1).tolist() == [1.0, 0.0]
    second = asked.take(slice(1, 2)).context
    assert second is not None
    assert second.weights.sum() == 0.0
    for wrong in ({"user_features": {"town": "Oslo"}}, {"context": {"device": ["phone"]}}):
        with pytest.raises(InputError, match=r"there is no column 'town'; the model reads city|expected device as"):
            recommender.recommend([RecommendRequest(history=["i1"], **wrong)])


def test_an_update_goes_on_with_users_and_contexts(folder: Path, tmp_path: Path) -> None:
    model = DeepTreeRetriever.load(folder)
    moved = pl.DataFrame({"user_id": ["u01", "u30"], "city": ["Oslo", "Rome"]})
    model.update(log_of(first_time=100, users=31), users=moved, force=True, progress=False)
    model.save(tmp_path / "updated")
    log = DeepTreeRetriever.load(tmp_path / "updated").fitted.update_state().log
    assert log.user_table is not None
    assert dict(log.user_table.iter_rows()) == dict(USERS.iter_rows()) | dict(moved.iter_rows())
    assert log.user_table["user_id"].to_list() == log.users.ids.to_list()
    assert log.context is not None
    assert log.context["device"].to_list() == ["phone", "tablet"] * 3 * (2 * 30 + 1)


def test_new_rows_without_the_column_have_no_context_and_values_of_another_type_are_refused(folder: Path) -> None:
    model = DeepTreeRetriever.load(folder)
    model.update(log_of(first_time=100).drop("device"), force=True, progress=False)
    context = model.fitted.update_state().log.context
    assert context is not None
    assert context["device"].null_count() == 180
    with pytest.raises(DataError, match="a column that the model was not fitted with: town"):
        model.update(log_of(first_time=200), users=USERS.rename({"city": "town"}), force=True, progress=False)


def test_settings_of_a_table_that_is_not_given_are_refused() -> None:
    config = small_config(model={"parts": ("memory",)}, log={"features": {"users.city": "category"}})
    with pytest.raises(SettingsError, match=r"log.features names columns of a user table"):
        DeepTreeRetriever(config).fit(log_of(first_time=0), progress=False)
    plain = DeepTreeRetriever(small_config(model={"parts": ("memory",)})).fit(log_of(first_time=0), progress=False)
    with pytest.raises(DataError, match="fitted without a user table"):
        plain.update(log_of(first_time=100), users=USERS, force=True, progress=False)


def test_values_that_would_change_in_the_type_of_the_fit_are_refused() -> None:
    users = Vocabulary(pl.Series("id", ["a", "b"]))
    known = pl.DataFrame({"user_id": ["a", "b"], "age": [31, 40], "city": ["Oslo", None]})

    def replaced(**columns: Sequence[object]) -> list[tuple[object, ...]]:
        found = replaced_users(known, pl.DataFrame({"user_id": ["b"], **columns}), users=users)
        assert found is not None
        return found.rows()

    assert replaced(age=[41.0]) == [("a", 31, "Oslo"), ("b", 41, None)]
    assert replaced(city=[7]) == [("a", 31, "Oslo"), ("b", None, "7")], "a row is replaced as a whole"
    for wrong, shown in (([40.5], "40.5"), (["forty"], "'forty'")):
        with pytest.raises(DataError, match=f"Expected the column age as Int64, .* got {shown}"):
            replaced(age=wrong)
