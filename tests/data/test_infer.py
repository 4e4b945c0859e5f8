from datetime import date, datetime
from typing import Any

import polars as pl
import pytest

from beamtree.data.infer import typed


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1", "-20", None], [1, -20, None]),
        (["0.5", "3", "1e-05", ""], [0.5, 3.0, 1e-05, None]),
        (["true", "FALSE", "True"], [True, False, True]),
        (["2024-02-29", "1999-12-31"], [date(2024, 2, 29), date(1999, 12, 31)]),
        (
            ["2024-02-29T12:30:00Z", "2024-02-29 12:30:00.5+01:00"],
            [datetime(2024, 2, 29, 12, 30), datetime(2024, 2, 29, 11, 30, 0, 500_000)],
        ),
    ],
)
def test_a_column_gets_the_type_that_all_its_values_have(texts: list[str | None], values: list[Any]) -> None:
    assert typed(pl.Series("x", texts, dtype=pl.String)).to_list() == values


@pytest.mark.parametrize(
    "texts",
    [
        ["007", "012"],
        ["0123.50", "1.5"],
        ["12345678901234567890123", "1"],
        ["1", "two"],
        ["12e4", "7e1"],
        ["2024-02-30", "2024-02-28"],
        ["yes", "no"],
        ["inf", "1.5"],
        ["+49 30 1", "5"],
    ],
)
def test_what_would_lose_its_spelling_stays_text(texts: list[str]) -> None:
    kept = typed(pl.Series("x", texts))
    assert kept.dtype == pl.String
    assert kept.to_list() == texts


def test_a_column_without_values_stays_text() -> None:
    assert typed(pl.Series("x", ["", " ", None], dtype=pl.String)).to_list() == [None, None, None]
