"""The tower's encoder learns on: from the saved weights and moments, on new rows and a share of old ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from beamtree.artefact import Artefact
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.fitting.computation import learning_device
from beamtree.fitting.run import identity_of
from beamtree.model.features import RequestVectors
from beamtree.model.next_item import NextItemModel
from beamtree.model.tower import TOWER
from beamtree.training.checkpoint import Arrays
from beamtree.training.estimate import sequence_learner
from beamtree.training.events import ESTIMATOR, Listener
from beamtree.training.horizon import TargetHorizon
from beamtree.training.randomness import numpy_generator
from beamtree.training.schedule import epoch_schedule
from beamtree.training.trainer import CheckpointPlan, Trainer
from beamtree.training.windows import TrainingWindows
from beamtree.types import AnyArray, Int64Array

UPDATE_SHARE = 0.1
"""Of the positions that a fit may learn from, what an update may."""
OLD_SHARE = 0.3
"""Of these, old ones, so that nothing is forgotten."""
RATE_SHARE = 0.5
"""Of the learning rate of a fit, where an update begins."""
LEARNED = ("encoder.", "offset.")
"""What the names of arrays of a tower that were learned begin with, beside its table."""


@dataclass(frozen=True)
class Continuation:
    """How an update is watched and stopped; directory: for checkpoints."""

    listen: Listener
    should_stop: Callable[[], bool]
    directory: Path | None
    resume: bool


def saved_encoder(artefact: Artefact) -> NextItemModel:
    """The encoder of a model's tower, with the vectors of its items."""
    config, tree, arrays = artefact.config, artefact.tree, artefact.part(TOWER)
    vectors = arrays["node_table"][int(tree.level_offsets[tree.height]) + tree.leaf_of_item]
    encoder = NextItemModel(
        config.estimator,
        num_items=len(vectors),
        history_length=config.encoder_history,
        generator=torch.Generator().manual_seed(config.training.seed),
        offset=RequestVectors.like(arrays),
    )
    state = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items() if name.startswith(LEARNED)}
    encoder.load_state_dict(state | {"items": torch.from_numpy(vectors)})
    return encoder


def learn_on(
    encoder: NextItemModel,
    dataset: Dataset,
    split: Split,
    *,
    known_end: Int64Array,
    optimiser: Mapping[str, AnyArray],
    config: Config,
    continuation: Continuation,
) -> Arrays:
    """Learn from the windows with new rows and some without, in place; the optimiser's arrays afterwards.

    known_end: (users,), where the new rows of each user begin.
    """
    settings, seed = config.estimator, config.training.seed
    encoder.to(learning_device(config))
    windows = TrainingWindows.cut(
        dataset.sequences,
        split,
        length=encoder.history_length,
        horizon=TargetHorizon.of(config.training, seed=seed),
        features=dataset.features,
    )
    chosen = _chosen(windows, dataset, known_end=known_end, most=_max_positions(config), seed=seed)
    if len(chosen) == 0:
        return dict(optimiser)
    learned = windows.take(chosen)
    positions = int(learned.lengths.sum())
    learner = sequence_learner(encoder, windows=windows, seed=seed)
    moments = grown_moments(optimiser, encoder)
    if moments:
        learner.restore_optimiser(moments)
    plan = None
    if continuation.directory is not None:
        plan = CheckpointPlan(
            continuation.directory,
            identity_of(dataset, config=config),
            resume=continuation.resume,
            minutes=config.training.schedule.checkpoint_minutes,
        )
    batch = max(1, round(settings.batch_positions_of(len(encoder.items)) * len(learned) / positions))
    Trainer(
        ESTIMATOR,
        learner,
        learned,
        schedule=epoch_schedule(
            len(learned),
            batch_size=batch,
            epochs=1.0,
            learning_rate=RATE_SHARE * settings.learning_rate,
            decay="cosine",
            validations=1,
            patience=1,
            seed=seed,
            remedy=f"Lower estimator.learning_rate (now {settings.learning_rate:g}) and fit again.",
        ),
        validate=None,
        plan=plan,
        listen=continuation.listen,
        should_stop=continuation.should_stop,
    ).run()
    encoder.encoder.compact()
    return learner.optimiser_arrays()


def grown_moments(optimiser: Mapping[str, AnyArray], encoder: NextItemModel) -> Arrays:
    """Moments with rows of zeros for new items; none where the items are read by rows now and were not then."""
    num_items, width = encoder.items.shape
    read_by_rows = {name.rpartition(".")[0] for name in optimiser if not name[0].isdigit()}
    if read_by_rows != set(encoder.sparse_tables):
        return {}
    of_items, grown = "items." if read_by_rows else "0.", Arrays()
    for name, array in optimiser.items():
        is_of_items = name.startswith(of_items) and array.ndim == 2
        new = np.zeros((num_items - len(array) if is_of_items else 0, width), dtype=array.dtype)
        grown[name] = np.concatenate([array, new]) if is_of_items else np.array(array)
    return grown


def _max_positions(config: Config) -> int | None:
    most = config.estimator.max_positions
    return None if most is None else max(1, round(UPDATE_SHARE * most))


def _chosen(
    windows: TrainingWindows, dataset: Dataset, *, known_end: Int64Array, most: int | None, seed: int
) -> Int64Array:
    """Windows with a new target, as many as there are positions for, and old ones in proportion, in rising order."""
    offsets = dataset.sequences.offsets
    is_new = np.arange(offsets[-1]) >= np.repeat(known_end, np.diff(offsets))
    before = np.concatenate([[0], np.cumsum(is_new)])
    has_new = before[windows.end] > before[windows.first + 1]
    generator = numpy_generator(seed, "update", len(windows))
    new = _within(generator.permutation(np.flatnonzero(has_new)), windows.lengths, most and (1 - OLD_SHARE) * most)
    room = OLD_SHARE / (1 - OLD_SHARE) * windows.lengths[new].sum()
    old = _within(generator.permutation(np.flatnonzero(~has_new)), windows.lengths, room)
    return np.sort(np.concatenate([new, old]))


def _within(shuffled: Int64Array, lengths: Int64Array, most: float | None) -> Int64Array:
    """As many of the first windows as have at most so many positions together."""
    if most is None:
        return shuffled
    return shuffled[np.cumsum(lengths[shuffled]) <= most]
