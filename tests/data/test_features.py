"""Columns as features: which kind each is, and what a row of a table is made of."""

import numpy as np
import polars as pl
import pytest

from beamtree.data.feature_column import HASHED_ROWS
from beamtree.data.features import FeatureSchema
from beamtree.errors import DataError, SettingsError

TABLE = pl.DataFrame(
    {
        "item_id": [1, 2, 3, 4],
        "title": ["a", "b", "c", "d"],
        "category": ["x", "x", "y", None],
        "genres": ["p|q", "q", "p", "p|q"],
        "price": [1.0, 2.0, None, 9.0],
        "tags": [["t", "u"], ["t"], None, []],
        "vector": [[3.0, 4.0], None, [0.0, 5.0], [5.0, 0.0]],
        "sku": ["k1", "k2", "k3", "k4"],
        "is_new": [True, False, False, True],
        "nothing": [None, None, None, None],
    }
)


def kinds(schema: FeatureSchema) -> dict[str, str]:
    return {column.name: column.kind for column in schema.columns}


def test_kinds_are_inferred_and_names_are_left_out() -> None:
    found = kinds(FeatureSchema.infer(TABLE))
    assert found == {
        "category": "category",
        "genres": "categories",
        "price": "number",
        "tags": "categories",
        "vector": "vector",
        "is_new": "category",
    }


def test_what_is_declared_overrules_what_is_inferred() -> None:
    found = kinds(FeatureSchema.infer(TABLE, {"genres": "ignore", "price": "category", "sku": "category"}))
    assert "genres" not in found
    assert found["price"] == found["sku"] == "category"
    with pytest.raises(SettingsError, match="no column 'colour'"):
        FeatureSchema.infer(TABLE, {"colour": "category"})
    with pytest.raises(DataError, match="Expected numbers in the column 'category', got 'x'"):
        FeatureSchema.infer(TABLE, {"category": "number"})
    with pytest.raises(DataError, match="Expected lists of numbers in the column 'price'"):
        FeatureSchema.infer(TABLE, {"price": "vector"})


def test_a_value_has_one_row_wherever_it_occurs_and_several_share_their_weight() -> None:
    schema = FeatureSchema.infer(TABLE.select("genres"))
    features = schema.encode(TABLE)
    assert features.entries.shape == (4, 2)
    both, only_q, only_p = features.entries[0], features.entries[1, 0], features.entries[2, 0]
    assert set(both) == {only_p, only_q}
    assert features.weights[0] == pytest.approx([2**-0.5, 2**-0.5])
    assert features.weights[1] == pytest.approx([1.0, 0.0])
    assert features.entries[1, 1] == 0


def test_rare_and_unknown_values_share_hashed_rows() -> None:
    schema = FeatureSchema.infer(TABLE.select("category"), {"category": "category"})
    assert schema.num_rows == 1 + 1 + HASHED_ROWS  # "y" occurs once
    later = schema.encode(pl.DataFrame({"category": ["x", "y", "never seen", None, " "]}))
    assert later.entries[0, 0] == 1
    assert (later.entries[1:3, 0] >= 2).all()
    assert (later.weights[3:] == 0.0).all()
    again = schema.encode(pl.DataFrame({"category": ["never seen"]}))
    assert again.entries[0, 0] == later.entries[2, 0]


def test_a_number_is_shared_between_the_quantiles_around_it() -> None:
    schema = FeatureSchema.infer(pl.DataFrame({"price": [0.0, 10.0]}))
    [column] = schema.columns
    at = np.array(column.quantiles)
    features = schema.encode(pl.DataFrame({"price": [0.0, 10.0, 2.5, -99.0, None, float("nan")]}))
    value = (np.concatenate([[0.0], at])[features.entries] * features.weights).sum(axis=1)
    assert value == pytest.approx([0.0, 10.0, 2.5, 0.0, 0.0, 0.0])
    assert features.weights.sum(axis=1) == pytest.approx([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])


def test_a_constant_number_is_one_row() -> None:
    features = FeatureSchema.infer(pl.DataFrame({"price": [7, 7, 7]})).encode(pl.DataFrame({"price": [7, 8, None]}))
    assert features.weights.tolist() == [[1.0], [1.0], [0.0]]


def test_vectors_are_scaled_and_must_keep_their_size() -> None:
    schema = FeatureSchema.infer(TABLE.select("vector"))
    assert schema.encode(TABLE).vectors == pytest.approx(np.array([[0.6, 0.8], [0, 0], [0, 1], [1, 0]]))
    with pytest.raises(
        DataError, match="vectors of 2 numbers in the column 'vector', as when the model was fitted, got 3"
    ):
        schema.encode(pl.DataFrame({"vector": [[1.0, 2.0, 3.0]]}))
    with pytest.raises(DataError, match="vectors of one size"):
        FeatureSchema.infer(pl.DataFrame({"vector": [[1.0], [1.0, 2.0]]}))


def test_vectors_may_all_be_missing() -> None:
    schema = FeatureSchema.infer(TABLE.select("vector"))
    nobody_gives_one = pl.DataFrame({"vector": [None, None]}, schema={"vector": pl.List(pl.Float32)})
    assert schema.encode(nobody_gives_one).vectors.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_a_column_without_any_number_is_left_out() -> None:
    table = pl.DataFrame({"price": [float("nan"), float("inf"), None], "weight": [float("nan"), 2.0, None]})
    assert kinds(FeatureSchema.infer(table)) == {"weight": "number"}


def test_columns_that_a_later_table_lacks_are_missing() -> None:
    features = FeatureSchema.infer(TABLE).encode(pl.DataFrame({"item_id": [9]}))
    assert len(features) == 1
    assert not features.weights.any()
    assert not features.vectors.any()


def test_a_schema_survives_a_file() -> None:
    schema = FeatureSchema.infer(TABLE)
    assert FeatureSchema.from_json(schema.as_json()) == schema
    with pytest.raises(DataError, match="features of the model cannot be read"):
        FeatureSchema.from_json([{"name": "x", "kind": "colour"}])


@pytest.mark.parametrize(
    "column",
    [
        {"kind": "category", "values": ["a", "a"]},
        {"kind": "category", "values": ["\ud800"]},
        {"kind": "category", "quantiles": [1.0]},
        {"kind": "category", "separator": "|"},
        {"kind": "categories", "separator": ""},
        {"kind": "category", "size": 2},
        {"kind": "number"},
        {"kind": "number", "quantiles": [2.0, 1.0]},
        {"kind": "number", "quantiles": [1.0, float("nan")]},
        {"kind": "number", "quantiles": [1.0], "values": ["a"]},
        {"kind": "vector", "size": -1},
        {"kind": "vector", "size": 2**62},
        {"kind": "vector", "size": 2, "separator": "|"},
        {"kind": "vector", "size": 2, "scale": 0.0},
        {"kind": "vector", "size": 2, "scale": float("nan")},
        {"kind": "number", "quantiles": [1.0], "name": "\udfff"},
    ],
)
def test_a_column_that_contradicts_itself_is_refused(column: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"cannot be read: the column .* contradicts itself"):
        FeatureSchema.from_json([{"name": "x"} | column])


def test_a_column_that_is_there_twice_is_refused() -> None:
    columns = FeatureSchema.infer(TABLE.select("category", "price")).as_json()
    with pytest.raises(DataError, match="column 'category' is there twice"):
        FeatureSchema.from_json([*columns, columns[0]])


def test_words_of_names_are_no_values_but_blanks_between_genres_are() -> None:
    names = pl.DataFrame({"department": ["FRESH FISH", "DRY GOODS", "FRESH FISH", "DRY GOODS"] * 3})
    assert kinds(FeatureSchema.infer(names)) == {"department": "category"}
    rng = np.random.default_rng(0)
    genres = [" ".join(sorted(rng.choice(list("abcdefgh"), size=3, replace=False))) for _ in range(300)]
    assert kinds(FeatureSchema.infer(pl.DataFrame({"genres": genres}))) == {"genres": "categories"}


def test_lines_say_what_each_column_is() -> None:
    [line] = FeatureSchema.infer(TABLE.select("category", "price", "vector")).lines()
    assert line == "features of the items: category (1 values), price (number), vector (vector of 2)"
    assert FeatureSchema().lines() == []
