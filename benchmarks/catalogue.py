"""Random catalogues in which vectors, follower lists and histories keep to the tree, as those of a fit do.

An item's vector is the sum of one normal draw for each node above its leaf, scaled to unit length: two items that share
j of H levels have a cosine of about j / H. An inner node has the mean of the vectors below. Neighbourhoods have no
scale: what follows an item lies `distance` leaves away, where the logarithm of the distance is uniform between 1 and
half the catalogue, and a history is a walk of such steps. Items are numbered at random, so that neighbours on the
leaves are strangers in every table by item. The encoder and the attention network are freshly initialised.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from beamtree.config import Config, PartName
from beamtree.data.prepare import MAX_DEFAULT_HISTORY
from beamtree.data.requests import Histories, Requests
from beamtree.model.attention import Attention
from beamtree.model.embedding_init import node_means
from beamtree.model.encoders import make_encoder
from beamtree.model.memory import HALF, LINK_BYTES, MAX_FOLLOWERS, Links, Memory, MemoryWeights
from beamtree.model.sequence_encoder import initialise
from beamtree.native.tower import TowerArrays
from beamtree.retrieval.native_scorer import NativeScorer
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array, Int64Array

WEIGHTS = MemoryWeights(transitions=1.0, company=1.0, popularity=0.01, fade=0.8)
"""Every kind of evidence takes part but own repeats, which most logs leave out."""

HISTORY_LENGTH = 50
"""So many items has a history, and so many does the encoder read."""

ITEMS_AT_A_TIME = 2**17


@dataclass(frozen=True, eq=False)
class Catalogue:
    """A tree, and the parts of a random score over it. tower: arrays by name."""

    tree: ItemTree
    tower: dict[str, AnyArray]
    memory: Memory

    @classmethod
    def draw(cls, *, items: int, followers: int, seed: int = 0) -> "Catalogue":
        """A binary tree over so many items, each of which has two lists of so many others."""
        generator = np.random.default_rng(seed)
        tree = ItemTree(2, generator.permutation(items).astype(np.int32))
        transitions = draw_links(tree, length=followers, generator=generator)
        company = draw_links(tree, length=followers, generator=generator)
        popularity = np.log1p(items / (1.0 + generator.permutation(items))).astype(np.float32)
        returns = np.ones(items, dtype=np.float32)
        memory = Memory(transitions, company, returns=returns, popularity=popularity, weights=WEIGHTS)
        return cls(tree, draw_tower(tree, generator=generator), memory)

    @cached_property
    def encoder(self) -> TowerArrays:
        """The tower in the kernels, to encode histories by itself."""
        return TowerArrays.pack(self.tower, self.tree)

    @property
    def item_vectors(self) -> Float32Array:
        """The tower's vectors of the items (items, width), in a copy."""
        rows = self.tree.level_offsets[self.tree.height] + self.tree.leaf_of_item
        vectors: Float32Array = self.tower["node_table"][rows]
        return vectors

    def scorer(self, *parts: PartName, attention_levels: int | None = None) -> NativeScorer:
        """The sum of the named parts; the attention network, of the default sizes, may be on the last levels alone."""
        config = Config.resolve({"model": {"parts": parts, "attention_levels": attention_levels}})
        attention = None
        if "attention" in parts:
            network = Attention(config.model, self.tree, generator=torch.Generator().manual_seed(0))
            attention = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
        return NativeScorer(
            self.tree,
            attention=attention,
            memory=self.memory if "memory" in parts else None,
            tower=self.tower if "tower" in parts else None,
            config=config,
        )

    def requests(self, count: int, *, seed: int = 1) -> list[Requests]:
        """Single requests that exclude nothing."""
        generator = np.random.default_rng(seed)
        size = self.tree.num_leaves
        edges = distance_edges(size, length=min(HISTORY_LENGTH, (size - 1) // 2))
        strata = generator.integers(0, len(edges) - 1, size=(count, HISTORY_LENGTH))
        steps = signed_distances(edges, strata, generator=generator)
        leaves = (generator.integers(0, size, size=(count, 1)) + np.cumsum(steps, axis=1)) % size
        histories = Histories.of_rows(self.tree.item_at_leaf[leaves])
        return [Requests(histories.take(slice(number, number + 1))) for number in range(count)]


def draw_tower(tree: ItemTree, *, generator: np.random.Generator) -> dict[str, AnyArray]:
    """The arrays of a tower of the default sizes, by name."""
    sizes = Config().estimator
    vectors = np.zeros((tree.num_items, sizes.width), dtype=np.float32)
    for level in range(1, tree.height + 1):
        draws = generator.standard_normal((tree.level_sizes[level], sizes.width), dtype=np.float32)
        vectors += draws[tree.item_ancestors(np.arange(tree.num_items), level)]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    encoder = make_encoder(sizes, history_length=min(HISTORY_LENGTH, MAX_DEFAULT_HISTORY))
    initialise(encoder, torch.Generator().manual_seed(int(generator.integers(2**31))))
    encoder.compact()
    arrays = {f"encoder.{name}": tensor.numpy() for name, tensor in encoder.state_dict().items()}
    return {"node_table": node_means(tree, vectors), "weight": np.ones((), dtype=np.float32), **arrays}


def draw_links(tree: ItemTree, *, length: int, generator: np.random.Generator) -> Links:
    """For each item a list of so many others, one from each of equal ranges of the logarithm of their distance."""
    size = tree.num_leaves
    edges = distance_edges(size, length=length)
    strata = np.arange(length)
    items = np.empty((size, length), dtype=np.int32)
    for first in range(0, size, ITEMS_AT_A_TIME):
        leaves = tree.leaf_of_item[first : first + ITEMS_AT_A_TIME, None].astype(np.int64)
        steps = signed_distances(edges, np.broadcast_to(strata, (len(leaves), length)), generator=generator)
        items[first : first + len(leaves)] = np.sort(tree.item_at_leaf[(leaves + steps) % size], axis=1)
    strengths = generator.random(items.size, dtype=np.float32).astype(HALF)
    return Links(np.arange(size + 1, dtype=np.int64) * length, items.ravel(), strengths)


def distance_edges(size: int, *, length: int) -> Int64Array:
    """The bounds (length + 1,) of so many ranges of distances from 1 to half of `size`, none of them empty.

    Equal in the logarithm as far as whole numbers allow. ValueError where half of `size` has too few distances.
    """
    most = (size - 1) // 2
    if not 1 <= length <= most:
        raise ValueError(f"Expected 1 to {most} followers in a catalogue of {size} items, got {length}.")
    equal = np.geomspace(1, most + 1, length + 1)
    place = np.arange(length + 1)
    # A range begins at least one after the range before it.
    edges = np.maximum.accumulate(equal.round().astype(np.int64) - place) + place
    return np.minimum(edges, most + 1 - place[::-1])


def signed_distances(edges: Int64Array, strata: Int64Array, *, generator: np.random.Generator) -> Int64Array:
    """A distance from each of the numbered ranges (...), to the left or to the right."""
    widths = edges[strata + 1] - edges[strata]
    distances = edges[strata] + (generator.random(strata.shape) * widths).astype(np.int64)
    return np.where(generator.random(strata.shape) < 0.5, -distances, distances)


def followers_within(megabytes: float, *, items: int) -> int:
    """The length of each of two lists per item that all lists together have room for, at most the default length."""
    most = min(MAX_FOLLOWERS, (items - 1) // 2)
    return max(1, min(most, int(megabytes * 1e6 / (2 * LINK_BYTES * items))))
