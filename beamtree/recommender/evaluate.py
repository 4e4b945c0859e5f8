"""Evaluate a fitted model on held-out users: by beam search, by an exact scan, and beside baselines."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from beamtree.baselines.comparison import Comparison, compare
from beamtree.baselines.protocol import Budget
from beamtree.baselines.registry import Asked, choose_baselines, reasons_left_out
from beamtree.data.dataset import Dataset
from beamtree.data.interactions import InteractionLog
from beamtree.data.split import HeldOut, Split
from beamtree.data.tables import Source
from beamtree.errors import DataError, InputError
from beamtree.evaluation.answers import BeamSearch, ExactScan
from beamtree.evaluation.metrics import Metrics
from beamtree.evaluation.protocol import CUTOFFS, checked_cutoffs, evaluate, split_dataset
from beamtree.recommender.fitted import Fitted
from beamtree.recommender.listening import log_event
from beamtree.training.events import Listener

BEAM, EXACT = "beam", "exact"
"""What a comparison calls the model's own answers."""

HeldOutGroup = Literal["test", "validation"]


def evaluate_fitted(
    fitted: Fitted,
    interactions: InteractionLog | Source | None,
    *,
    users: Source | None,
    held_out: HeldOutGroup,
    cutoffs: int | Iterable[int],
    beam: int | None,
    exact: bool,
    baselines: Asked,
    estimator_cache: str | Path | None,
    listen: Listener | None,
) -> Comparison:
    """The model and baselines on held-out users; see `DeepTreeRetriever.evaluate`."""
    if held_out not in ("test", "validation"):
        raise InputError(f"Expected held_out as 'test' or 'validation', got {held_out!r}.")
    config, tops = fitted.artefact.config, checked_cutoffs(cutoffs)
    dataset = fitted.dataset if interactions is None else fitted.prepare(interactions, users=users)
    if dataset is None:
        raise InputError("A loaded model carries no log. Pass the one that it was fitted on.")
    split, asked = _held_out(fitted, dataset, group=held_out)
    chosen = choose_baselines(baselines, dataset, config=config)
    width = config.retrieval.beam_width if beam is None else beam
    engine = fitted.recommender.engine
    model: dict[str, Metrics] = {}
    if held_out == "test" and width == config.retrieval.beam_width and tops == CUTOFFS and fitted.test_metrics:
        model[BEAM] = fitted.test_metrics
    else:
        model[BEAM] = evaluate(BeamSearch(engine, width), dataset, asked, config=config, cutoffs=tops)
    if exact:
        model[EXACT] = evaluate(ExactScan(engine), dataset, asked, config=config, cutoffs=tops)
    with TemporaryDirectory(prefix="beamtree-") as for_this_call:  # two baselines ask for the same SASRec
        return compare(
            model,
            chosen,
            dataset,
            split,
            users=asked,
            budget=Budget(config, directory=Path(estimator_cache or for_this_call), listen=listen or log_event),
            cutoffs=tops,
            left_out=reasons_left_out(baselines, dataset, config=config),
            beam=width,
        )


def _held_out(fitted: Fitted, dataset: Dataset, *, group: HeldOutGroup) -> tuple[Split, HeldOut]:
    """The split of the fit and one of its groups; DataError where the log is another one, or no users are held out."""
    if dataset.fingerprint != fitted.artefact.data_fingerprint:
        raise DataError(
            "This is not the log that the model was fitted on, so its held-out users cannot be found again. "
            "Give the same log with the same columns and filters, or fit on this one."
        )
    config = fitted.artefact.config
    split = split_dataset(dataset, config=config)
    asked = split.test if group == "test" else split.validation
    if len(asked) == 0:
        raise DataError(f"The model was fitted with data.holdout = '{config.data.holdout}': no users are held out.")
    return split, asked
