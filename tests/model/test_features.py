"""Vectors from features: learned beside the items' own, and as a regression for items that nobody has met."""

import numpy as np
import polars as pl
import pytest
import torch

from beamtree.config import Config
from beamtree.data.features import FeatureSchema
from beamtree.errors import InputError
from beamtree.model.features import ContentModel, FeatureVectors
from beamtree.model.proposal import Proposal
from beamtree.model.sequence_encoder import SasRec

TABLE = pl.DataFrame({"kind": ["a", "a", "b", "b", "b", "a"], "vector": [[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3})
SCHEMA = FeatureSchema.infer(TABLE)
FEATURES = SCHEMA.encode(TABLE)


def filled(width: int) -> FeatureVectors:
    vectors = FeatureVectors(FEATURES, num_rows=SCHEMA.num_rows, width=width)
    with torch.no_grad():
        for parameter in vectors.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(0))
    return vectors


def test_items_with_the_same_features_have_the_same_vector() -> None:
    vectors = filled(4)()
    assert torch.equal(vectors[0], vectors[1])
    assert torch.equal(vectors[3], vectors[4])
    assert not torch.equal(vectors[0], vectors[2])
    assert torch.allclose(filled(4)(torch.tensor([5, 2])), vectors[[5, 2]])


def test_before_learning_features_add_nothing_and_then_their_rows_learn() -> None:
    settings = Config().estimator.model_copy(update={"width": 8, "heads": 2, "layers": 1, "dropout": 0.0})
    content = FeatureVectors(FEATURES, num_rows=SCHEMA.num_rows, width=8)
    plain, encoder = (
        SasRec(
            settings,
            num_items=6,
            history_length=4,
            generator=torch.Generator().manual_seed(1),
            content=added,
        )
        for added in (None, content)
    )
    assert np.array_equal(encoder.item_vectors(), plain.item_vectors())
    history = np.array([[0, 2, 3, 1]], dtype=np.int32)
    assert np.array_equal(encoder.scores(history), plain.scores(history))
    loss = encoder.loss(
        history[0],
        np.array([[2], [3], [1], [4]], dtype=np.int32),
        lengths=np.array([4]),
        proposal=Proposal.half_by_frequency(np.ones(6, dtype=np.int64)),
        generator=torch.Generator().manual_seed(0),
    )
    loss.backward()
    gradient = content.embedding.grad
    assert gradient is not None
    assert gradient[FEATURES.entries[0, 0]].abs().sum() > 0
    assert gradient[0].abs().sum() == 0  # the row of nothing
    assert content.projection.grad is not None
    assert content.projection.grad.abs().sum() > 0


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


def test_coefficients_of_other_features_are_refused() -> None:
    with pytest.raises(InputError, match="Expected coefficients of"):
        ContentModel.from_arrays(SCHEMA, {"coefficients": np.zeros((3, 2), dtype=np.float32)})
    model = ContentModel.fit(SCHEMA, FEATURES, np.ones((6, 2), dtype=np.float32), weights=np.ones(6))
    again = ContentModel.from_arrays(SCHEMA, model.arrays())
    assert np.array_equal(again.vectors(FEATURES), model.vectors(FEATURES))
