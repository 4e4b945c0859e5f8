"""A model in memory: everything that requests need and that changes only with the model."""

import threading
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from beamtree.artefact import Artefact, faults_of, load_artefact
from beamtree.data.features import FeatureSchema
from beamtree.data.raw_ids import RawIds
from beamtree.model.memory import Memory
from beamtree.native.encoder_arrays import encoder_sizes
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.similar import SimilarItems
from beamtree.serving.branch_names import BranchNames
from beamtree.serving.catalogue import Catalogue
from beamtree.serving.limits import FILTER_CACHE_BYTES

NO_END = 2**31 - 1

_KERNELS = threading.Lock()
"""Held while the engine searches: the kernels use all cores for one call."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """One version of the model. A request uses the same one from start to end."""

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
        """How many of the latest items of a history can change an answer; unbounded where repeats count."""
        lengths = [0]
        if self.artefact.part("attention"):
            lengths.append(self.artefact.config.model.attention_history)
        if tower := self.artefact.part("tower"):
            lengths.append(encoder_sizes(tower, width=tower["node_table"].shape[1]).history_length)
        if self.artefact.part("memory"):
            memory = Memory.from_arrays(self.artefact.part("memory"))
            lengths += [NO_END] if memory.weights.repeats > 0.0 else [kind.depth for kind in memory.kinds]
        return max(lengths)

    @property
    def version(self) -> str:
        """Short hash of the files."""
        return self.artefact.version

    @cached_property
    def columns(self) -> list[dict[str, object]]:
        """Names, types and values of the columns of the item table."""
        return self.catalogue.describe_columns()

    @cached_property
    def features(self) -> dict[str, list[dict[str, object]]]:
        """The columns that are read as features, of items, of users and of the context of a request."""
        read = self.artefact.request_features
        items = FeatureSchema.infer(self.artefact.item_table, self.artefact.config.log.item_features)
        schemas = {"items": items, "users": read.user, "context": read.context}
        return {
            whose: [
                {"name": column.name, "kind": column.kind, "size": column.size or None} for column in schema.columns
            ]
            for whose, schema in schemas.items()
        }

    def describe(self) -> None:
        """Make what GET /v1/model says, which takes a while, before the thread that all clients share needs it."""
        _ = self.history_length, self.columns, self.features

    @cached_property
    def branch_names(self) -> BranchNames:
        """Names of the nodes of the tree."""
        return BranchNames(self.artefact.tree, self.artefact.item_table, popularity=self.artefact.popularity)


def load_model(directory: Path) -> LoadedModel:
    """Load a model; ArtefactError where it cannot be read or is inconsistent.

    All of it is read into memory: later changes to the folder cannot affect what is served.
    """
    with faults_of(directory):
        return assemble(load_artefact(directory))


def assemble(artefact: Artefact) -> LoadedModel:
    """Build the engine and the look-up tables over an artefact."""
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
