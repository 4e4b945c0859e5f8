"""The vector of an item that nobody has met, from what is known of it."""

import numpy as np
import polars as pl
import pytest

from beamtree.data.features import FeatureSchema
from beamtree.model.content import ContentModel

TABLE = pl.DataFrame({"kind": ["a", "a", "b", "b", "b", "a"], "vector": [[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3})
SCHEMA = FeatureSchema.infer(TABLE)
FEATURES = SCHEMA.encode(TABLE)


def test_a_regression_on_features_finds_what_made_the_vectors() -> None:
    rng = np.random.default_rng(0)
    table = pl.DataFrame({"kind": rng.choice(list("abcd"), 400), "price": rng.uniform(0, 1, 400)})
    schema = FeatureSchema.infer(table)
    features = schema.encode(table)
    of_kind = {kind: rng.normal(size=3) for kind in "abcd"}
    slope = rng.normal(size=3)
    truth = np.stack([of_kind[kind] + slope * price for kind, price in table.iter_rows()]).astype(np.float32)
    model = ContentModel.fit(schema, features, truth, weights=np.ones(400))
    new = pl.DataFrame({"kind": ["a", "d"], "price": [0.25, 0.75]})
    wanted = np.stack([of_kind[kind] + slope * price for kind, price in new.iter_rows()])
    assert model.vectors(schema.encode(new)) == pytest.approx(wanted, abs=0.2)


def test_what_is_known_of_nobody_gets_the_mean() -> None:
    truth = np.arange(12, dtype=np.float32).reshape(6, 2)
    model = ContentModel.fit(SCHEMA, FEATURES, truth, weights=np.ones(6))
    unknown = model.vectors(SCHEMA.encode(pl.DataFrame({"other": [1]})))
    assert np.isfinite(unknown).all()
    assert truth.min() <= unknown.min()
    assert unknown.max() <= truth.max()


def test_heavier_items_count_more() -> None:
    table = pl.DataFrame({"kind": ["a", "a", "b", "b"]})
    schema = FeatureSchema.infer(table)
    truth = np.array([[0.0], [1.0], [0.0], [1.0]], dtype=np.float32)
    model = ContentModel.fit(schema, schema.encode(table), truth, weights=np.array([1.0, 50.0, 50.0, 1.0]))
    a, b = model.vectors(schema.encode(pl.DataFrame({"kind": ["a", "b"]})))[:, 0]
    assert a > b
