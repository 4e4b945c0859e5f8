"""Similar items: by the tree, by learned vectors, or by co-occurrence."""

from functools import cached_property
from typing import Literal

import numpy as np

from beamtree.artefact import Artefact
from beamtree.errors import InputError
from beamtree.model.memory import Memory
from beamtree.types import Float32Array, Int64Array

Similarity = Literal["embedding", "memory"]

ROWS_AT_A_TIME = 65_536
_PARTS_OF: dict[Similarity, tuple[str, ...]] = {"embedding": ("attention", "tower"), "memory": ("memory",)}
"""The parts of a score for each similarity; the first one that a model has is used."""


class SimilarItems:
    """Similar items of one model. kinds: similarities that the model has besides the tree, the best first."""

    def __init__(self, artefact: Artefact) -> None:
        self._artefact = artefact
        self._tree = artefact.tree
        self.kinds: tuple[Similarity, ...] = tuple(kind for kind in _PARTS_OF if self._part_for(kind) is not None)

    def near(self, item: int, *, count: int, by: Similarity | None = None) -> tuple[Int64Array, Float32Array]:
        """The dense items nearest to a dense item and how near they are.

        InputError for a count below 1, and for a similarity that the model lacks.
        """
        if count < 1:
            raise InputError(f"Expected at least 1 item to be asked for, got {count}.")
        if not self.kinds:
            raise InputError("This model has no attention, tower or memory, so that its items cannot be compared.")
        chosen = by or self.kinds[0]
        if chosen not in self.kinds:
            raise InputError(
                f"This model has no part {' or '.join(map(repr, _PARTS_OF[chosen]))}, so that items cannot be compared "
                f"by {chosen}. "
                f"Compare them by {' or '.join(self.kinds)}."
            )
        return self.by_embedding(item, count=count) if chosen == "embedding" else self.by_memory(item, count=count)

    def in_tree(self, item: int, *, count: int) -> tuple[Int64Array, list[int]]:
        """The items of the nearest leaves, and the deepest level on which each shares a node with the item."""
        tree, leaf = self._tree, int(self._tree.leaf_of_item[item])
        found: list[Int64Array] = []
        levels: list[int] = []
        inner_first, inner_end = leaf, leaf + 1
        num_vacant = tree.num_leaves - tree.num_present
        for level in range(tree.height - 1, -1, -1):
            first, end = (int(bound) for bound in tree.leaf_ranges(tree.ancestors(leaf, level), level))
            missing = count - len(levels)
            reach = missing + num_vacant
            left = np.arange(max(first, inner_first - reach), inner_first)
            right = np.arange(inner_end, min(end, inner_end + reach))
            around = np.concatenate([left, right])
            around = around[tree.item_at_leaf[around] >= 0]
            around = around[np.argsort(np.abs(around - leaf), kind="stable")][:missing]
            found.append(tree.item_at_leaf[around].astype(np.int64))
            levels += [level] * len(around)
            inner_first, inner_end = first, end
            if len(levels) >= count:
                break
        return np.concatenate(found), levels

    def by_embedding(self, item: int, *, count: int) -> tuple[Int64Array, Float32Array]:
        """The items whose leaf vectors have the highest cosine with the item's, and the cosines."""
        vectors, lengths = self._leaf_vectors
        leaf = int(self._tree.leaf_of_item[item])
        own = vectors[leaf] / max(float(lengths[leaf]), 1e-12)
        cosines = np.empty(self._tree.num_leaves, dtype=np.float32)
        for first in range(0, len(cosines), ROWS_AT_A_TIME):
            rows = slice(first, first + ROWS_AT_A_TIME)
            cosines[rows] = vectors[rows] @ own / np.maximum(lengths[rows], 1e-12)
        cosines[leaf] = -np.inf
        cosines[self._tree.item_at_leaf < 0] = -np.inf
        count = min(count, int(np.isfinite(cosines).sum()))
        best = np.argpartition(-cosines, count)[:count]
        best = best[np.lexsort((best, -cosines[best]))]
        return self._tree.item_at_leaf[best].astype(np.int64), cosines[best]

    def by_memory(self, item: int, *, count: int) -> tuple[Int64Array, Float32Array]:
        """The items that followed the item most often in the log, at most `count`, and ln(1 + how often)."""
        links = self._memory.transitions
        followers = slice(links.offsets[item], links.offsets[item + 1])
        items, strengths = links.items[followers], links.strengths[followers].astype(np.float32)
        best = np.lexsort((items, -strengths))
        best = best[(items[best] != item) & ~np.isin(items[best], self._tree.removed)][:count]
        return items[best].astype(np.int64), strengths[best]

    @cached_property
    def _leaf_vectors(self) -> tuple[Float32Array, Float32Array]:
        """Vectors (leaves, size) of the leaves, a view where they are float32, and their lengths (leaves,)."""
        nodes = self._artefact.part(self._part_for("embedding") or "")["node_table"]
        vectors = np.asarray(nodes[self._tree.level_offsets[self._tree.height] :], dtype=np.float32)
        return vectors, np.linalg.norm(vectors, axis=1)

    def _part_for(self, kind: Similarity) -> str | None:
        return next((part for part in _PARTS_OF[kind] if self._artefact.part(part)), None)

    @cached_property
    def _memory(self) -> Memory:
        return Memory.from_arrays(self._artefact.part("memory"))
