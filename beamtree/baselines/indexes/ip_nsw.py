"""IP-NSW: a small-world graph whose edges follow inner products (Morozov, Babenko, NeurIPS 2018). Needs faiss.

As faiss builds it: the layers of HNSW, with the inner product for distance throughout. The paper's "maximum degree 16"
is HNSW's M, so that a node of the bottom layer has up to 32 edges; of the two widths that the paper gives for the
search, 100 and 150, the greater is taken, as for its trees.
"""

from dataclasses import dataclass

import numpy as np

from beamtree.baselines.indexes.faiss_search import one_faiss_thread, serialised_bytes, with_nothing
from beamtree.baselines.indexes.index import VectorIndex, rising
from beamtree.baselines.indexes.vectors import TrainingQueries
from beamtree.baselines.protocol import Budget
from beamtree.retrieval.result import SearchResult
from beamtree.types import Float32Array

CANDIDATES = (16, 32, 64, 100, 150, 250, 500, 1000)


@dataclass(frozen=True)
class IpNsw:
    """degree: HNSW's M; build_width: candidates for the edges of a new node; width: of the search, usually."""

    degree: int = 16
    build_width: int = 100
    width: int = 150

    def __call__(self, vectors: Float32Array, *, queries: TrainingQueries, budget: Budget) -> VectorIndex:
        """As `BuildIndex`. Built by one thread: with several, the graph would depend on their timing."""
        import faiss

        del queries, budget
        graph = faiss.IndexHNSWFlat(vectors.shape[1], self.degree, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = self.build_width
        with one_faiss_thread():
            graph.add(vectors)

        def search(queries: Float32Array, k: int, effort: int) -> SearchResult:
            params = faiss.SearchParametersHNSW(efSearch=max(effort, k))  # no narrower than k
            scores, items = graph.search(queries, k, params=params)
            return with_nothing(items.astype(np.int32), scores)

        efforts = rising(*CANDIDATES, self.width, most=max(2000, self.width))
        return VectorIndex(search, "ef", efforts, self.width, serialised_bytes(graph))
