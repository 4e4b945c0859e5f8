"""A beamtree model as an MLflow model of the flavour `python_function`. Needs the extra `beamtree[mlflow]`.

`mlflow.pyfunc.load_model(uri).predict(frame)` takes a data frame with a column `history`, a list of item ids in each
row, and returns one with the same index and the columns `item_ids` and `scores`, best first. The options k, beam and
exclude_seen are given as params. What is stored is the folder of `DeepTreeRetriever.save`: data only, no pickle.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow.artifacts
import mlflow.pyfunc
import pandas as pd
from mlflow.models import Model, ModelSignature
from mlflow.models.model import ModelInfo
from mlflow.types.schema import Array, ColSpec, DataType, ParamSchema, ParamSpec, Schema

from beamtree.artefact import Artefact
from beamtree.errors import InputError
from beamtree.recommender import DeepTreeRetriever, load
from beamtree.retrieval.request import DEFAULT_K, RecommendOptions, RecommendRequest
from beamtree.retrieval.scorers import unknown_parts

HISTORY = "history"
PARAMS = ("k", "beam", "exclude_seen")
ROWS_AT_A_TIME = 1024


def save_model(
    model: DeepTreeRetriever,
    path: str | Path,
    *,
    pip_requirements: Sequence[str] | None = None,
    input_example: pd.DataFrame | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a fitted model as an MLflow model to a folder that does not exist yet.

    pip_requirements: what is installed where the model is loaded, by default this version of beamtree. input_example: a
    data frame that is stored with the model and tried. InputError for a score with parts of your own, which MLflow
    could not load.
    """
    with TemporaryDirectory(prefix="beamtree-") as folder:
        mlflow.pyfunc.save_model(path=str(path), **_described(model, folder, pip_requirements, input_example, metadata))


def log_model(
    model: DeepTreeRetriever,
    name: str = "model",
    *,
    registered_model_name: str | None = None,
    pip_requirements: Sequence[str] | None = None,
    input_example: pd.DataFrame | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> ModelInfo:
    """Log a fitted model to the active run, or to a new one; as `save_model`. Its model_uri loads it."""
    with TemporaryDirectory(prefix="beamtree-") as folder:
        return mlflow.pyfunc.log_model(
            name=name,
            registered_model_name=registered_model_name,
            **_described(model, folder, pip_requirements, input_example, metadata),
        )


def load_model(model_uri: str | Path) -> DeepTreeRetriever:
    """The beamtree model itself, with all that it can do, from a folder or any URI that MLflow knows.

    InputError where the URI names a model of another kind.
    """
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=str(model_uri)))
    flavour = Model.load(str(folder)).flavors.get(mlflow.pyfunc.FLAVOR_NAME, {})
    if flavour.get(mlflow.pyfunc.MAIN) != __name__:
        raise InputError(
            f"Expected an MLflow model that beamtree wrote, got one that {flavour.get(mlflow.pyfunc.MAIN)!r} loads: "
            f"{model_uri}. Load it with mlflow.pyfunc.load_model."
        )
    return load(folder / flavour[mlflow.pyfunc.DATA])


class HistoryModel:
    """What `mlflow.pyfunc.load_model` wraps."""

    def __init__(self, model: DeepTreeRetriever) -> None:
        self._model = model

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """The best items for each row: lists of ids and of scores, which are None for popular items.

        InputError for a frame without the column `history` and for params that are not PARAMS.
        """
        unknown = sorted(set(params or {}) - set(PARAMS))
        if unknown:
            raise InputError(f"Expected params among {', '.join(PARAMS)}, got {', '.join(unknown)}. Leave them out.")
        if not isinstance(model_input, pd.DataFrame) or HISTORY not in model_input.columns:
            got = f"columns {list(model_input.columns)}" if isinstance(model_input, pd.DataFrame) else type(model_input)
            raise InputError(
                f"Expected a data frame with a column {HISTORY!r}, a list of item ids in each row, got {got}. "
                "For one history: pd.DataFrame({'history': [[...]]})."
            )
        options = RecommendOptions(**(params or {}))
        requests = [RecommendRequest(history=history, options=options) for history in model_input[HISTORY]]
        answers = [
            answer
            for first in range(0, len(requests), ROWS_AT_A_TIME)
            for answer in self._model.recommender.recommend(requests[first : first + ROWS_AT_A_TIME])
        ]
        columns = {"item_ids": [answer.items for answer in answers], "scores": [answer.scores for answer in answers]}
        return pd.DataFrame(columns, index=model_input.index)


def _load_pyfunc(data_path: str) -> HistoryModel:
    """Called by MLflow."""
    return HistoryModel(load(data_path))


def _described(
    model: DeepTreeRetriever,
    folder: str,
    pip_requirements: Sequence[str] | None,
    input_example: pd.DataFrame | None,
    metadata: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Save the model below a folder, and return its description for MLflow."""
    artefact = model.recommender.artefact
    own = unknown_parts(artefact.weights)
    if own:
        raise InputError(
            f"The score of this model has parts of your own ({', '.join(own)}), which MLflow has no way to make again. "
            "Log a model without them, or log the folder of model.save(...) as an artifact."
        )
    data_path = Path(folder) / "beamtree"
    model.save(data_path)
    return {
        "loader_module": __name__,
        "data_path": str(data_path),
        "signature": _signature(artefact),
        "pip_requirements": list(pip_requirements or [f"beamtree[mlflow]=={version('beamtree')}"]),
        "input_example": input_example,
        "metadata": dict(metadata or {}),
    }


def _signature(artefact: Artefact) -> ModelSignature:
    ids = Array(DataType.long if artefact.items.holds_integers else DataType.string)
    retrieval = artefact.config.retrieval
    return ModelSignature(
        inputs=Schema([ColSpec(ids, HISTORY)]),
        outputs=Schema([ColSpec(ids, "item_ids"), ColSpec(Array(DataType.double), "scores")]),
        params=ParamSchema(
            [
                ParamSpec("k", DataType.long, DEFAULT_K),
                ParamSpec("beam", DataType.long, retrieval.beam_width),
                ParamSpec("exclude_seen", DataType.boolean, retrieval.excludes_seen),
            ]
        ),
    )
