"""Every type of column against every condition: a mask or a refusal, never anything else, and neighbours unharmed."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.exceptions import PanicException

from beamtree.data.requests import Requests
from beamtree.retrieval.result import SearchResult
from beamtree.serving.answers import answer_calls
from beamtree.serving.api_error import ApiError
from beamtree.serving.conditions import ItemConditions
from beamtree.serving.limits import CONDITION_CHARACTERS
from beamtree.serving.loaded_model import LoadedModel, assemble
from beamtree.serving.outcome import outcome_of
from beamtree.serving.schemas.recommend_body import Condition, Recommend
from beamtree.serving.wire import json_response
from tests.serving.models import random_artefact

NUM_ITEMS = 12
INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
MOMENT = datetime(2020, 1, 31, 12, 30)

SCALARS: dict[str, pl.Series] = {
    **{str(dtype): pl.Series([0, 1, 7, None], dtype=dtype) for dtype in INTEGERS},
    "UInt64 large": pl.Series([0, 2**64 - 1, 2**63, None], dtype=pl.UInt64),
    "Float32": pl.Series([0.5, float("nan"), float("inf"), None], dtype=pl.Float32),
    "Float64": pl.Series([0.5, float("nan"), -float("inf"), None], dtype=pl.Float64),
    "Decimal": pl.Series([Decimal("0.50"), Decimal("1.00"), Decimal("7.00"), None]),
    "Boolean": pl.Series([True, False, True, None]),
    "String": pl.Series(["a", "", "1", None]),
    "Categorical": pl.Series(["a", "b", "1", None], dtype=pl.Categorical),
    "Enum": pl.Series(["a", "b", "1", None], dtype=pl.Enum(["a", "b", "1"])),
    "Date": pl.Series([date(2020, 1, 31), date(1, 1, 1), date(9999, 12, 31), None]),
    "Datetime": pl.Series([MOMENT, datetime(1, 1, 1), datetime(9999, 12, 31), None]),
    "Datetime ns": pl.Series([MOMENT, MOMENT, MOMENT, None], dtype=pl.Datetime("ns")),
    "Datetime UTC": pl.Series([MOMENT.replace(tzinfo=UTC)] * 3 + [None], dtype=pl.Datetime("us", "UTC")),
    "Time": pl.Series([time(12, 30), time(0), time(23, 59, 59), None]),
    "Duration": pl.Series([timedelta(days=1), timedelta(0), timedelta(days=-9), None]),
    "Binary": pl.Series([b"a", b"", b"\xff", None]),
    "Null": pl.Series([None, None, None, None], dtype=pl.Null),
    "Struct": pl.Series([{"x": 1}, {"x": 2}, {"x": None}, None]),
}


def columns() -> Iterator[tuple[str, pl.Series]]:
    """Each type by itself, as lists with empty and null ones, as arrays, and as lists of lists."""
    for name, series in SCALARS.items():
        yield name, series
        one, two, nulls = (series.slice(start, length).implode() for start, length in ((0, 1), (1, 2), (3, 1)))
        lists = pl.concat([one, two, series.head(0).implode(), nulls])
        none = lists.clear(1)
        yield f"List({name})", lists
        yield f"List({name}) with nulls", pl.concat([one, two, none, none])
        yield f"List(List({name}))", pl.concat([lists.slice(row, 1).implode() for row in range(4)])
        if not series.dtype.is_nested() and series.dtype != pl.Null:
            pairs = pl.concat([pl.concat([one, one]).explode().implode(), two, two, none])
            yield f"Array({name})", pairs.list.to_array(2)


COLUMNS = dict(columns())
VALUES: list[Any] = [
    *(True, 0, 1, -1, 7, 300, 2**53 + 1, 2**63 - 1, -(2**63)),
    *(0.5, 1.5, -0.0, 1e308, float(2**70), "", "a", "1", "2020-01-31", "2020-01-31T12:30:00", "12:30", "NaN"),
    *("\0", "[(*", "😀" * 256, "x" * CONDITION_CHARACTERS),
]
CONDITIONS: list[dict[str, Any]] = [
    *({name: value} for value in VALUES for name in ("at_least", "at_most")),
    *({"one_of": [value]} for value in VALUES),
    *({"contains": value} for value in VALUES if isinstance(value, str)),
    *({"one_of": values} for values in ([], [1, 1.5], [0.5, 2**63 - 1], ["a", 1], [True, 1], list(range(1000)))),
    {"one_of": ["a", "b"], "contains": "a", "at_least": "a", "at_most": "b"},
    {"one_of": [1, 7], "at_least": 0.5, "at_most": 7},
]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    artefact = random_artefact(NUM_ITEMS)
    repeated = [pl.concat([series] * (NUM_ITEMS // 4)).alias(name) for name, series in COLUMNS.items()]
    return assemble(replace(artefact, item_table=artefact.item_table.with_columns(repeated)))


@pytest.mark.parametrize("column", COLUMNS)
def test_every_condition_gives_a_mask_or_a_refusal(model: LoadedModel, column: str) -> None:
    for condition in CONDITIONS:
        conditions = ItemConditions([Condition(column=column, **condition)])
        mask = outcome_of(conditions.mask, model.catalogue.item_table)
        if isinstance(mask, ApiError):
            assert (mask.status, mask.code) == (422, "wrong_type"), condition
            assert column in mask.message
        else:
            assert not isinstance(mask, BaseException), condition
            assert mask.shape == (NUM_ITEMS,), condition
            assert mask.dtype == np.bool_, condition
            assert not mask[3::4].any(), condition


@pytest.mark.parametrize("column", COLUMNS)
def test_neighbours_of_every_condition_are_answered(model: LoadedModel, column: str) -> None:
    innocent = [Recommend(history=[100, 101], k=3)]
    [right] = answer_calls(model, [innocent], histories=None)
    hostile = [
        [Recommend(history=[102], k=2, columns=columns, allow={"where": [{"column": column, **condition}]})]
        for condition in CONDITIONS
        for columns in ([], [column])
    ]
    outcomes = answer_calls(model, [innocent, *hostile, innocent], histories=None)
    assert outcomes[0] == outcomes[-1] == right
    for [asked], outcome in zip(hostile, outcomes[1:-1], strict=True):
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, ApiError), asked.allow
            assert outcome.status == 422
        else:
            assert json_response(outcome).status_code == 200


@pytest.mark.parametrize(
    ("column", "condition", "expected"),
    [
        ("List(Int64)", {"one_of": [1.5]}, []),
        ("List(Int64)", {"one_of": [7.0, 9]}, [1]),
        ("List(UInt8)", {"one_of": [300, 0]}, [0]),
        ("List(Date)", {"one_of": ["2020-01-31"]}, [0]),
        ("List(Datetime)", {"contains": "2020-01-31T12:30:00"}, [0]),
        ("List(Categorical)", {"one_of": ["b"]}, [1]),
        ("List(Boolean)", {"one_of": [True]}, [0, 1]),
        ("Array(String)", {"contains": "1"}, [1, 2]),
        ("UInt64 large", {"at_least": 1}, [1, 2]),
        ("UInt64 large", {"one_of": [2**63 - 1]}, []),
        ("Float64", {"at_least": 0.0}, [0]),
        ("Float64", {"at_most": 1}, [0, 2]),
        ("Int64", {"at_least": 1e308}, []),
        ("Int8", {"at_most": 2**63 - 1}, [0, 1, 2]),
        ("Decimal", {"one_of": [0.5]}, [0]),
        ("Null", {"one_of": ["a", "b"]}, []),
        ("Time", {"at_least": "12:30", "at_most": "13"}, [0]),
    ],
)
def test_what_conditions_choose(column: str, condition: dict[str, Any], expected: list[int]) -> None:
    table = pl.DataFrame({column: COLUMNS[column]})
    mask = ItemConditions([Condition(column=column, **condition)]).mask(table)
    assert np.flatnonzero(mask).tolist() == expected


class Trouble(BaseException):
    """What a panic looks like: no Exception."""


def test_a_search_that_fails_fails_only_its_own_call(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [[Recommend(history=[history], k=3)] for history in (100, 101, 102)]
    right = [answer_calls(model, [call], histories=None)[0] for call in calls]
    search = model.recommender.engine.search

    def fails_for_item_1(requests: Requests, **options: Any) -> SearchResult:
        if 1 in requests.histories.items:
            raise Trouble
        return search(requests, **options)

    monkeypatch.setattr(model.recommender.engine, "search", fails_for_item_1)
    outcomes = answer_calls(model, calls, histories=None)
    assert (outcomes[0], outcomes[2]) == (right[0], right[2])
    assert isinstance(outcomes[1], Trouble)


def test_a_panic_while_a_condition_is_evaluated_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: Any) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr("beamtree.serving.conditions._matches", panic)
    with pytest.raises(ApiError, match="column Int64, which holds Int64") as refusal:
        ItemConditions([Condition(column="Int64", one_of=[1])]).mask(pl.DataFrame({"Int64": [1]}))
    assert refusal.value.status == 422
