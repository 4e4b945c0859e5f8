"""Shared helpers of the faiss indexes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from beamtree.retrieval.result import SearchResult
from beamtree.types import NOTHING, Float32Array, Int32Array


def with_nothing(items: Int32Array, scores: Float32Array) -> SearchResult:
    """Items and scores (queries, k) as faiss returns them, with -inf where there is no item."""
    return SearchResult(items, np.where(items == NOTHING, np.float32(-np.inf), scores))


def serialised_bytes(index: Any) -> int:
    """What a faiss index holds."""
    import faiss

    return int(faiss.serialize_index(index).nbytes)


@contextmanager
def one_faiss_thread() -> Iterator[None]:
    """Inside, faiss works in one thread."""
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)
