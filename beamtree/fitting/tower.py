"""From a trained encoder to a tower: leaves have the item vectors, inner nodes approximate the best leaf below."""

from dataclasses import replace

import numpy as np

from beamtree.data.requests import Histories, Requests
from beamtree.fitting.run import FitRun
from beamtree.model.guide import inner_vectors
from beamtree.model.next_item import NO_HISTORY_SHARE, NextItemModel
from beamtree.model.tower import tower_arrays
from beamtree.training.randomness import numpy_generator
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array

GUIDING_HISTORIES = 4096
"""Training histories that the vectors of inner nodes are fitted on."""
WITHOUT_HISTORY_EVERY = round(1.0 / NO_HISTORY_SHARE)
"""One in this number of them is emptied if features of users and contexts are read."""


def build_tower(
    run: FitRun, encoder: NextItemModel, tree: ItemTree, *, expectations: Float32Array | None = None
) -> dict[str, AnyArray]:
    """The arrays of a tower over a tree, named by part.

    expectations: what `training_expectations` gives, where that is known already.
    """
    if expectations is None:
        expectations = training_expectations(run, encoder)
    on_step = run.stop_while("building the tower")
    inner = inner_vectors(encoder.item_vectors(), expectations, tree, on_step=on_step)
    return {f"tower/{name}": array for name, array in tower_arrays(encoder, tree, inner=inner).items()}


def training_expectations(run: FitRun, encoder: NextItemModel) -> Float32Array:
    """Encodings (histories, width) of a sample of the training histories."""
    generator = numpy_generator(run.config.training.seed, "guide")
    chosen = np.sort(generator.permutation(len(run.instances))[:GUIDING_HISTORIES])
    requests = run.instances.batch(chosen).requests
    return encoder.expectations_of(requests if encoder.offset is None else _some_without_history(requests))


def _some_without_history(requests: Requests) -> Requests:
    histories = requests.histories
    starts = histories.starts.copy()
    starts[::WITHOUT_HISTORY_EVERY] = histories.ends[::WITHOUT_HISTORY_EVERY]
    return replace(requests, histories=Histories(histories.items, starts, histories.ends))
