"""The adapter with a dataset of the shape of RecTools', whose answer is obvious: two groups of users and items."""

import warnings
from dataclasses import dataclass

import pandas as pd
import pytest

from beamtree.errors import InputError, UnknownUsersError
from beamtree.integrations.rectools import RecToolsModel
from tests.small import small_config, two_group_log


@dataclass(frozen=True)
class FakeDataset:
    """Answers as `rectools.dataset.Dataset` does."""

    raw: pd.DataFrame

    def get_raw_interactions(self, include_weight: bool = True, include_datetime: bool = True) -> pd.DataFrame:
        left_out = {"weight": include_weight, "datetime": include_datetime}
        return self.raw.drop(columns=[name for name, is_in in left_out.items() if not is_in])


def two_groups() -> pd.DataFrame:
    log = two_group_log().frame
    return pd.DataFrame(
        {
            "user_id": log["user_id"].to_list(),
            "item_id": log["item_id"].to_list(),
            "weight": 1.0,
            "datetime": pd.to_datetime(log["timestamp"].to_numpy(), unit="D", origin="2024-01-01"),
        }
    )


@pytest.fixture(scope="module")
def dataset() -> FakeDataset:
    return FakeDataset(two_groups())


@pytest.fixture(scope="module")
def model(dataset: FakeDataset) -> RecToolsModel:
    return RecToolsModel(small_config()).fit(dataset)


def test_recommendations_have_the_columns_of_rectools(model: RecToolsModel, dataset: FakeDataset) -> None:
    assert model.is_fitted
    frame = model.recommend(["b03", "a01"], dataset, 3, False)
    assert frame.columns.tolist() == ["user_id", "item_id", "score", "rank"]
    assert frame["user_id"].tolist() == ["b03"] * 3 + ["a01"] * 3
    assert frame["rank"].tolist() == [1, 2, 3] * 2
    assert [item[0] for item in frame["item_id"]] == ["b"] * 3 + ["a"] * 3, "each group gets its own items"
    assert frame["score"].groupby(frame["user_id"]).is_monotonic_decreasing.all()
    without = model.recommend(["b03", "a01"], dataset, k=3, filter_viewed=False, add_rank_col=False)
    pd.testing.assert_frame_equal(without, frame.drop(columns="rank"))


def test_viewed_items_are_left_out_if_asked(model: RecToolsModel, dataset: FakeDataset) -> None:
    seen = set(dataset.raw.loc[dataset.raw["user_id"] == "a01", "item_id"])
    assert seen & set(model.recommend(["a01"], dataset, 20, False)["item_id"])
    left = model.recommend(["a01"], dataset, 20, True)["item_id"]
    assert not seen & set(left)
    assert len(left) == 20 - len(seen)


def test_only_items_to_recommend_come_back(model: RecToolsModel, dataset: FakeDataset) -> None:
    wanted = pd.Series(["b1", "b2", "never heard of"])
    found = model.recommend(pd.Series(["a01", "a02"]), dataset, 5, False, items_to_recommend=wanted)
    assert found.groupby("user_id")["item_id"].apply(set).tolist() == [{"b1", "b2"}] * 2


def test_histories_come_from_the_dataset_that_is_given(model: RecToolsModel, dataset: FakeDataset) -> None:
    other = FakeDataset(dataset.raw[dataset.raw["user_id"] == "b00"].assign(user_id="a01"))
    frame = model.recommend(["a01"], other, 3, False)
    assert {item[0] for item in frame["item_id"]} == {"b"}


def test_users_without_interactions(model: RecToolsModel, dataset: FakeDataset) -> None:
    with pytest.raises(UnknownUsersError, match="1 of 2 users are not in the log, the first is 'zz'"):
        model.recommend(["a01", "zz"], dataset, 3, False)
    with pytest.warns(UserWarning, match="1 of 2 users have no interactions"):
        warned = model.recommend(["a01", "zz"], dataset, 3, False, on_unsupported_targets="warn")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ignored = model.recommend(["a01", "zz"], dataset, 3, False, on_unsupported_targets="ignore")
    pd.testing.assert_frame_equal(warned, ignored)
    assert set(ignored["user_id"]) == {"a01"}
    assert model.recommend(["zz"], dataset, 3, False, on_unsupported_targets="ignore").empty


def test_weights_can_be_a_filter(dataset: FakeDataset) -> None:
    disliked = dataset.raw.assign(weight=(dataset.raw["item_id"] != "a0").astype(float))
    model = RecToolsModel(small_config(log={"keep": {"min_rating": 0.5}})).fit(FakeDataset(disliked))
    assert "a0" not in model.retriever.recommender.artefact.item_table["item_id"]
    assert "a1" in model.retriever.recommender.artefact.item_table["item_id"]


def test_what_is_no_dataset_or_not_fitted_is_an_error(dataset: FakeDataset) -> None:
    with pytest.raises(InputError, match=r"Expected a RecTools dataset, .* got DataFrame"):
        RecToolsModel(small_config()).fit(dataset.raw)
    with pytest.raises(InputError, match="has not learned anything yet"):
        RecToolsModel(small_config()).recommend(["a01"], dataset, 3, False)
    with pytest.raises(InputError, match="reads no context"):
        RecToolsModel().recommend(["a01"], dataset, 3, False, context=dataset.raw)
