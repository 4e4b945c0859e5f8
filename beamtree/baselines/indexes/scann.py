"""ScaNN: anisotropic vector quantisation behind a partition (Guo et al., ICML 2020). Needs the package scann.

Two settings. `SCANN` is the library's advice: sqrt(items) leaves, blocks of two dimensions, and the best candidates
scored again with their exact vectors. `PUBLISHED_SCANN` is what the paper of beamtree's method reports: 2,000 leaves of
which half are searched, blocks of four dimensions, no exact scores at the end; in a catalogue with fewer than four
items a leaf there are fewer leaves. Leaves start from k-means++ and one thread trains, because ScaNN's random start
takes no seed. ScaNN does not report its size; index_bytes counts its arrays: centres, codebooks, half a byte for
each block of an item and four for its place in a leaf, and where candidates are scored again, the vectors.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np

from beamtree.baselines.indexes.index import POWERS, VectorIndex, rising
from beamtree.baselines.indexes.vectors import TrainingQueries
from beamtree.baselines.protocol import Budget
from beamtree.evaluation.answers import empty_result
from beamtree.retrieval.result import SearchResult
from beamtree.types import NOTHING, Float32Array

MIN_LEAF = 4
ANISOTROPIC_THRESHOLD = 0.2
CODEWORDS = 16
FLOAT_BYTES = PLACE_BYTES = 4
STANDARD_ERROR = 2


@dataclass(frozen=True)
class Scann:
    """leaves: None = sqrt(items). reordered: candidates that are scored again exactly, at least, or twice what is
    asked for if that is more; 0 = none."""

    leaves: int | None
    dims_per_block: int
    reordered: int
    searched_share: float

    def __call__(self, vectors: Float32Array, *, queries: TrainingQueries, budget: Budget) -> VectorIndex:
        """As `BuildIndex`."""
        del queries, budget
        count = len(vectors)
        leaves = isqrt(count) if self.leaves is None else max(1, min(self.leaves, count // MIN_LEAF))
        usual = max(1, round(leaves * self.searched_share))
        searcher = self.searcher(vectors, leaves=leaves, searched=usual)

        def search(queries: Float32Array, k: int, effort: int) -> SearchResult:
            if len(queries) == 0:
                return empty_result(0, k=k)
            found, scores = searcher.search_batched(
                queries,
                final_num_neighbors=k,
                pre_reorder_num_neighbors=min(max(self.reordered, 2 * k), count) if self.reordered else k,
                leaves_to_search=min(effort, leaves),
            )
            is_missing = np.isnan(scores)
            items = np.where(is_missing, NOTHING, found.astype(np.int32)).astype(np.int32)
            return SearchResult(items, np.where(is_missing, np.float32(-np.inf), scores).astype(np.float32))

        held = self._bytes(count, vectors.shape[1], leaves=leaves)
        return VectorIndex(search, "leaves", rising(*POWERS, usual, most=leaves), usual, held)

    def searcher(self, vectors: Float32Array, *, leaves: int, searched: int) -> Any:
        """ScaNN's index, with the default number of leaves to search."""
        from scann import scann_ops_pybind

        builder = (
            scann_ops_pybind.builder(vectors, 1, "dot_product")
            .tree(
                num_leaves=leaves, num_leaves_to_search=searched, training_sample_size=len(vectors), random_init=False
            )
            .score_ah(
                self.dims_per_block,
                anisotropic_quantization_threshold=ANISOTROPIC_THRESHOLD,
                training_sample_size=len(vectors),
            )
            .set_n_training_threads(1)
        )
        if self.reordered:
            builder = builder.reorder(self.reordered)
        with _without_log():
            return builder.build()

    def _bytes(self, count: int, size: int, *, leaves: int) -> int:
        blocks = -(-size // self.dims_per_block)
        vectors = count * size * FLOAT_BYTES if self.reordered else 0
        return (leaves + CODEWORDS) * size * FLOAT_BYTES + count * blocks // 2 + count * PLACE_BYTES + vectors


SCANN = Scann(leaves=None, dims_per_block=2, reordered=150, searched_share=0.25)
PUBLISHED_SCANN = Scann(leaves=2000, dims_per_block=4, reordered=0, searched_share=0.5)


@contextmanager
def _without_log() -> Iterator[None]:
    """Inside, what ScaNN's C++ logs about its progress is dropped; its errors are exceptions."""
    kept = os.dup(STANDARD_ERROR)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, STANDARD_ERROR)
        yield
    finally:
        os.dup2(kept, STANDARD_ERROR)
        os.close(kept)
        os.close(nowhere)
