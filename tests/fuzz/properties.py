"""What holds for every model folder, whatever is in it: it is refused with an ArtefactError, or it answers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from beamtree.artefact import Artefact, save_artefact
from beamtree.data.feature_column import FeatureColumn
from beamtree.data.features import FeatureSchema
from beamtree.data.request_features import RequestFeatures
from beamtree.errors import ArtefactError
from beamtree.native.offset_arrays import CONTEXT, USER
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import RecommendOptions, RecommendRequest
from beamtree.serving.loaded_model import load_model
from beamtree.serving.trial import try_model
from tests import fixtures
from tests.fixtures import write_artefact_v6
from tests.fuzz.spoiling import Files, read_model
from tests.serving.models import save_model


def sound_models(folder: Path) -> list[Files]:
    """Sound models of every format, of every part of a score and of both kinds of ids; some are written to a folder."""
    save_model(folder / "all", 13, parts=("attention", "memory", "tower"), text_ids=True)
    save_model(folder / "memory", 9, parts=("memory",))
    save_artefact(folder / "features", reading_all_kinds_of_columns())
    stored = [path for path in Path(fixtures.__path__[0]).glob("artefact-v*") if path.is_dir()]
    return [read_model(directory) for directory in (*sorted(folder.iterdir()), *sorted(stored, reverse=True))]


def reading_all_kinds_of_columns() -> Artefact:
    """A model that reads a category, several categories, a number and a vector of the user and of the context."""
    artefact, generator = write_artefact_v6.artefact(), np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "city": ["Oslo", "Oslo", "Bergen", "Bergen"],
            "likes": ["jazz|rock", "rock|pop", "jazz|pop", "rock|pop"],
            "age": [20, 30, 40, 50],
            "taste": [[0.5, -0.5], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]],
        }
    )
    schema = FeatureSchema.infer(table, {"likes": "categories"})
    width = artefact.part("tower")["node_table"].shape[1]
    sizes = {"embedding": schema.num_rows, "projection": schema.vector_size}
    arrays = {
        f"tower/{prefix}.{name}": generator.normal(size=(rows, width)).astype(np.float32)
        for prefix in (USER, CONTEXT)
        for name, rows in sizes.items()
    }
    return replace(artefact, weights={**artefact.weights, **arrays}, request_features=RequestFeatures(schema, schema))


def values_of_its_columns(read: RequestFeatures) -> dict[str, Any]:
    """A value for each column that a model reads of users and contexts, as any client may send them."""

    def value(column: FeatureColumn) -> Any:
        known = column.values[0] if column.values else "Oslo"
        return {"category": known, "categories": [known, "new"], "number": 0.5, "vector": column.size * [0.5]}[
            column.kind
        ]

    return {
        name: {column.name: value(column) for column in schema.columns}
        for name, schema in (("user_features", read.user), ("context", read.context))
    }


def check_recommends(directory: Path) -> None:
    """The Python interface refuses the model, or recommends with it: each item once, none that was removed."""
    try:
        recommender = Recommender.load(directory)
    except ArtefactError as error:
        str(error).encode()
        return
    tree = recommender.artefact.tree
    known = recommender.ids.decode(np.arange(3) % tree.num_items)
    removed = set(recommender.ids.decode(tree.removed))
    features = values_of_its_columns(recommender.artefact.request_features)
    requests = [RecommendRequest(history=known, options=RecommendOptions(k=k)) for k in (1, 5, 2**40)]
    requests += [RecommendRequest(history=history, **features) for history in ([], known)]
    for answer in recommender.recommend(requests):
        assert len(set(answer.items)) == len(answer.items)
        assert removed.isdisjoint(answer.items)


def check_serves(directory: Path) -> None:
    """The server refuses the model, or can explain after the trial why it would recommend an item."""
    try:
        model = load_model(directory)
        try_model(model, directory=directory)
    except ArtefactError as error:
        str(error).encode()
        return
    tree = model.recommender.artefact.tree
    history = model.ids.decode(np.arange(1))
    item = model.ids.decode(np.setdiff1d(np.arange(tree.num_items), tree.removed)[:1])
    assert model.recommender.explain(history, item)
