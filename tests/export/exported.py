"""Random models, and their search in ONNX Runtime beside the engine's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import polars as pl

from beamtree.artefact import Artefact
from beamtree.config import ModelSettings
from beamtree.data.requests import Histories, Requests
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.result import SearchResult
from beamtree.retrieval.scorers import build_scorer
from beamtree.scorer import Scorer
from beamtree.tree.item_tree import ItemTree
from tests.small import Arrays, small_config, stirred_model, weights_of

Int32Array = npt.NDArray[np.int32]
TIE = 1e-5
MakeScorer = Callable[..., Scorer]


def random_artefact(settings: ModelSettings, tree: ItemTree, *, seed: int, text_ids: bool = False) -> Artefact:
    """An untrained model whose raw ids are i7, i8, ... or 7, 8, ... for the items 0, 1, ..."""
    numbers = range(7, 7 + tree.num_items)
    return Artefact(
        config=small_config(model=settings.model_dump()),
        weights={f"attention/{name}": array for name, array in _random_weights(settings, tree, seed=seed).items()},
        tree=tree,
        popularity=np.ones(tree.num_items, dtype=np.int64),
        item_table=pl.DataFrame({"item_id": [f"i{number}" for number in numbers] if text_ids else list(numbers)}),
        data_fingerprint="",
    )


def _random_weights(settings: ModelSettings, tree: ItemTree, *, seed: int) -> Arrays:
    """Weights so wild that different histories get different items."""
    generator = np.random.default_rng(seed)
    weights = weights_of(stirred_model(settings, tree, seed=seed))
    for name, array in weights.items():
        if np.issubdtype(array.dtype, np.floating) and not name.endswith(("running_var", "slope", "slopes")):
            weights[name] = generator.normal(scale=0.7, size=array.shape).astype(np.float32)
    return weights


def open_session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(path: Path, histories: npt.NDArray[Any], lengths: npt.ArrayLike | None = None) -> dict[str, npt.NDArray[Any]]:
    """All outputs by name; without lengths every entry of a row belongs to its history."""
    session = open_session(path)
    given = np.full(len(histories), histories.shape[1]) if lengths is None else np.asarray(lengths)
    outputs = session.run(None, {"history": histories.astype(np.int64), "length": given.astype(np.int64)})
    return dict(zip((output.name for output in session.get_outputs()), outputs, strict=True))


def search(
    artefact: Artefact, histories: Int32Array, *, k: int, beam_width: int, make_scorer: MakeScorer = build_scorer
) -> SearchResult:
    """make_scorer: build_torch_scorer is the judge of what is computed otherwise elsewhere."""
    scorer = make_scorer(artefact.weights, artefact.tree, config=artefact.config)
    requests = Requests(Histories.of_rows(histories))
    return Engine(scorer, artefact.tree).search(requests, k=k, beam_width=beam_width)


def assert_same_up_to_ties(outputs: dict[str, npt.NDArray[Any]], found: SearchResult) -> None:
    """The same scores place by place, and the same item wherever the next score is further away than a tie."""
    tolerance = TIE * np.maximum(1.0, np.abs(np.where(np.isfinite(found.scores), found.scores, 0.0)))
    same_score = np.isneginf(found.scores) & np.isneginf(outputs["scores"])
    with np.errstate(invalid="ignore"):
        same_score |= np.abs(outputs["scores"] - found.scores) <= tolerance
        gaps = np.abs(np.diff(found.scores, axis=1, append=np.nan))
    assert same_score.all(), f"scores differ by up to {np.abs(outputs['scores'] - found.scores).max()}"
    after_tie = gaps <= tolerance
    before_tie = np.pad(after_tie[:, :-1], ((0, 0), (1, 0)))
    last = np.arange(found.items.shape[1]) == found.items.shape[1] - 1
    differs = outputs["items"] != found.items
    assert not (differs & ~(after_tie | before_tie | last)).any(), "another item although no tie is near"
    # The last place may tie with what comes after it, which neither side shows; that is rare.
    assert (differs & last).sum() <= 0.01 * len(differs)
