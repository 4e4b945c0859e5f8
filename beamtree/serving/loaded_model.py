"""A model in memory, ready to answer: everything that one request needs and that changes only with the model."""

import threading
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from beamtree.artefact import Artefact, load_artefact
from beamtree.data.raw_ids import RawIds
from beamtree.data.requests import Histories, Requests
from beamtree.errors import ArtefactError, InputError
from beamtree.model.memory import Memory
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.similar import SimilarItems
from beamtree.serving.catalogue import Catalogue
from beamtree.serving.limits import FILTER_CACHE_BYTES

TRIED_ITEMS = 5

NO_END = 2**31 - 1

_KERNELS = threading.Lock()
"""Held while the engine searches. The kernels use all cores for one call, so calls go one after another."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """One version of the model. A request takes one of these at its start and keeps to it until its end."""

    artefact: Artefact
    recommender: Recommender
    catalogue: Catalogue
    similar: SimilarItems
    loaded_at: float = field(default_factory=time.time)

    @property
    def ids(self) -> RawIds:
        """Raw ids of the items."""
        return self.recommender.ids

    @cached_property
    def history_length(self) -> int:
        """How many of the latest items of a history can change an answer; without end where own repeats count."""
        lengths = [0]
        if self.artefact.part("attention"):
            lengths.append(self.artefact.config.model.history_length)
        if self.artefact.part("tower"):
            lengths.append(self.artefact.part("tower")["encoder.layers.0.recency"].shape[1])
        if self.artefact.part("memory"):
            memory = Memory.from_arrays(self.artefact.part("memory"))
            lengths += [NO_END] if memory.weights.repeats > 0.0 else [kind.depth for kind in memory.kinds]
        return max(lengths)

    @property
    def version(self) -> str:
        """A short name for exactly these files."""
        return self.artefact.version

    @cached_property
    def columns(self) -> list[dict[str, object]]:
        """What is known about the columns of the item table."""
        return self.catalogue.describe_columns()


def load_model(directory: Path) -> LoadedModel:
    """Read a model into memory of its own and try it; ArtefactError where it cannot be read or gives no sane answer.

    The arrays are copied, so that a file that is overwritten in place later cannot change or crash what is served.
    """
    artefact = load_artefact(directory)
    artefact = replace(artefact, weights={name: np.array(array) for name, array in artefact.weights.items()})
    try:
        model = assemble(artefact)
        _try(model)
    except ArtefactError:
        raise
    except InputError as error:
        raise ArtefactError(f"{directory} was read but cannot be served. {error}") from error
    except Exception as error:
        raise ArtefactError(
            f"{directory} was read but cannot be served: {type(error).__name__}: {error}. Fit the model again."
        ) from error
    return model


def assemble(artefact: Artefact) -> LoadedModel:
    """Build the engine and the look-up tables over an artefact."""
    tree = artefact.tree
    if len(artefact.item_table) != tree.num_items or artefact.popularity.shape != (tree.num_items,):
        raise ArtefactError(
            f"The tree has {tree.num_items} items, but the item table has {len(artefact.item_table)} rows and the "
            f"popularity has shape {artefact.popularity.shape}. Save the model again."
        )
    nodes = artefact.part("attention").get("node_table")
    expected = (tree.num_nodes, artefact.config.model.embedding_dim)
    if nodes is not None and nodes.shape != expected:
        raise ArtefactError(f"Expected a node table of shape {expected}, got {nodes.shape}. Save the model again.")
    recommender = Recommender(artefact, turn=_KERNELS, filter_cache_bytes=FILTER_CACHE_BYTES)
    return LoadedModel(
        artefact=artefact,
        recommender=recommender,
        catalogue=Catalogue(
            artefact.item_table,
            ids=recommender.ids,
            popularity=artefact.popularity,
            most_popular=recommender.most_popular,
        ),
        similar=SimilarItems(artefact),
    )


def _try(model: LoadedModel) -> None:
    """Search for nobody and for someone with popular items: all scores must be numbers."""
    for name, array in model.artefact.weights.items():
        if not np.isfinite(array).all():
            raise ArtefactError(f"The weights {name} hold values that are not finite. Fit the model again.")
    histories = Histories.of_lists([[], model.catalogue.most_popular[:TRIED_ITEMS]])
    found = model.recommender.engine.search(
        Requests(histories), k=1, beam_width=model.artefact.config.retrieval.beam_width
    )
    if (found.items < 0).any() or not np.isfinite(found.scores).all():
        raise ArtefactError(f"A trial search returned {found.items.tolist()} with scores {found.scores.tolist()}.")
