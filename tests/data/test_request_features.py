"""What requests say of users and contexts: read as at the fit, or refused."""

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.config import LogSettings
from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.interactions import read_interactions
from beamtree.data.request_features import DatasetFeatures, RequestFeatures
from beamtree.errors import DataError, InputError, SettingsError

SETTINGS = LogSettings(features={"context.device": "category", "context.hour": "number", "users.code": "category"})


def dataset() -> Dataset:
    rows = [(user, item, item, "phone" if item else "tablet", item) for user in range(6) for item in range(3)]
    table = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "device", "hour"], orient="row")
    users = pl.DataFrame(
        {
            "user_id": range(6),
            "age": [20, 30, 40, 50, 60, None],
            "city": ["Oslo", "Oslo", "Rome", "Rome", "Rome", None],
            "code": [1, 1, 2, 2, 2, 3],
            "is_member": [True, False, True, False, True, False],
            "likes": ["a|b", "a", "b", "a|b", "b|a", "a"],
            "email": [f"{number}@example.org" for number in range(6)],
        }
    )
    return prepare_dataset(read_interactions(table, context=["device", "hour"]), users=users)


@pytest.fixture(scope="module")
def read() -> RequestFeatures:
    return RequestFeatures.infer(dataset(), SETTINGS)


def test_kinds_are_inferred_for_users_and_declared_for_contexts(read: RequestFeatures) -> None:
    kinds = {column.name: column.kind for column in read.user.columns}
    assert kinds == {
        "age": "number",
        "city": "category",
        "code": "category",
        "is_member": "category",
        "likes": "categories",
    }
    assert read.lines() == [
        "features of the users: age (number), city (2 values), code (2 values), is_member (2 values), likes (2 values)",
        "features of the context: device (2 values), hour (number)",
    ]


def test_values_of_a_request_are_read_as_the_same_values_of_the_tables(read: RequestFeatures) -> None:
    found = DatasetFeatures.of(dataset(), read)
    assert found.users is not None
    assert found.contexts is not None
    values: dict[str, Any] = {"age": 20, "city": "Oslo", "code": 1, "is_member": True, "likes": ["a", "b"]}
    asked = read.of_users([values, {}])
    assert asked.entries[0].tolist() == [entry for entry in found.users.entries[0].tolist() if entry]
    np.testing.assert_array_equal(asked.weights[0], found.users.weights[0, : asked.entries.shape[1]])
    assert not asked.weights[1].any(), "nothing is known of the second"
    context = read.of_contexts([{"device": "phone", "hour": 1.0}])
    assert context.entries[0].tolist() == [entry for entry in found.contexts.entries[1].tolist() if entry]
    assert len(found.contexts) == 18


def test_a_model_remembers_what_it_reads(read: RequestFeatures) -> None:
    again = RequestFeatures.from_json(json.loads(json.dumps(read.as_json())))
    assert again == read
    assert not RequestFeatures.from_json({})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"colour": 1}, "user_features: there is no column 'colour'; the model reads age, city, code"),
        ({"age": "old"}, "expected age as a number or an ISO date, as the model was fitted with it, got 'old'"),
        ({"age": True}, "expected age as a number"),
        ({"city": ["Oslo"]}, "expected city as a text, a number or a boolean"),
        ({"likes": 3}, "expected likes as a text or a list of texts"),
    ],
)
def test_unknown_columns_and_values_of_another_type_are_refused(
    read: RequestFeatures, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read.of_users([{}, values])


def test_a_model_without_features_refuses_them() -> None:
    with pytest.raises(InputError, match="context: there is no column 'device'; the model was fitted without any"):
        RequestFeatures().of_contexts([{"device": "phone"}])
    assert RequestFeatures().of_contexts([{}, {}]).entries.shape == (2, 0)


def test_columns_that_are_not_there_are_named() -> None:
    with pytest.raises(SettingsError, match="no column 'shoe_size'"):
        RequestFeatures.infer(dataset(), LogSettings(features={"users.shoe_size": "number"}))
    table = pl.DataFrame({"user_id": [1, 1], "item_id": [1, 2], "timestamp": [1, 2]})
    without = prepare_dataset(read_interactions(table, context=["devise"]))
    with pytest.raises(DataError, match="reads the column 'devise' of the context, which has no value in this log"):
        RequestFeatures.infer(without, LogSettings(features={"context.devise": "category"}))
