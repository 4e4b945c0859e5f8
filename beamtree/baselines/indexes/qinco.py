"""QINCo: residual quantisation with implicit neural codebooks (Huijben et al., ICML 2024). Needs torch and faiss.

Sizes of the paper: 8 steps of 256 codewords, 4 residual blocks of width 256. Left open or changed here:
- codebooks start from faiss' residual quantiser and the networks from the identity, so that training starts there; of
  the paper's learning rate and a tenth of it the one with the least error is kept, and neither if both are worse;
- encoding runs the network for the 16 codewords that are nearest before it, not for all 256 (QINCo2 does the same);
- at most 30 epochs and 100,000 vectors with each rate, and no further epoch begins once the budget's seconds are spent;
- search as in the paper's pipeline, without inverted lists: an additive decoder of the same codes ranks all items; its
  shortlist is decoded by the network and ranked by query . decoded vector. The length of the shortlist is the effort.
  The additive codebooks are fitted to what the network decodes, not to the vectors: a small catalogue has fewer items
  than codewords, and they would learn its vectors by heart. Only codes, additive codebooks and network are kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from beamtree.baselines.indexes.faiss_search import serialised_bytes
from beamtree.baselines.indexes.index import VectorIndex, rising
from beamtree.baselines.indexes.vectors import TrainingQueries
from beamtree.baselines.protocol import Budget
from beamtree.errors import BaselineUnavailable
from beamtree.retrieval.result import SearchResult
from beamtree.types import NOTHING, AnyArray, Float32Array, Int64Array

MAX_ITEMS = 500_000
"""Encoding these takes about ten minutes on two cores."""

SHORTLISTS = (20, 50, 100, 200, 500, 1000)
CANDIDATES_AT_A_TIME = 2**17
"""Decoded vectors (queries x shortlist) that are in memory together."""

RIDGE = 1.0
"""Pulls the additive codebooks of rare codewords towards the residual quantiser's."""


@dataclass(frozen=True)
class Qinco:
    """Sizes and training; shortlist: usual number of items that are decoded for a query."""

    steps: int = 8
    blocks: int = 4
    width: int = 256
    epochs: int = 30
    max_vectors: int = 100_000
    shortlist: int = 200

    def __call__(self, vectors: Float32Array, *, queries: TrainingQueries, budget: Budget) -> VectorIndex:
        """As `BuildIndex`."""
        from beamtree.baselines.indexes.qinco_network import QincoNetwork, train_qinco

        del queries
        count = len(vectors)
        if count > MAX_ITEMS:
            raise BaselineUnavailable(
                f"QINCo expects at most {MAX_ITEMS:,} items, got {count:,}: encoding them would take hours."
            )
        scale = np.float32(max(float(vectors.std()), 1e-12))
        scaled = np.ascontiguousarray(vectors / scale)
        start = residual_codebooks(scaled, steps=self.steps, seed=budget.seed)
        network = QincoNetwork(start, blocks=self.blocks, width=self.width, seed=budget.seed)
        train_qinco(network, scaled, epochs=self.epochs, max_vectors=self.max_vectors, budget=budget)
        codes = network.encode(scaled)
        additive = additive_index(codes, start=start, vectors=network.decode(codes))
        network.eval()

        def search(queries: Float32Array, k: int, effort: int) -> SearchResult:
            _, shortlists = additive.search(queries, min(max(effort, k), count))
            return _ranked(shortlists, lambda items: network.decode(codes[items]) * scale, queries, k=k)

        usual = min(self.shortlist, count)
        # Codes are counted once: the additive index, which has a copy of them, could share them.
        held = serialised_bytes(additive) + sum(each.nbytes for each in network.parameters())
        return VectorIndex(search, "shortlist", rising(*SHORTLISTS, usual, most=count), usual, held)


def _ranked(
    shortlists: Int64Array, decode: Callable[[Int64Array], Float32Array], queries: Float32Array, *, k: int
) -> SearchResult:
    """The best k of the shortlists (queries, items); items that several queries have on theirs are decoded once."""
    met, places = np.unique(shortlists, return_inverse=True)
    decoded = decode(met) if len(met) else np.empty((0, queries.shape[1]))
    places = places.reshape(shortlists.shape)
    scores = np.empty(shortlists.shape, dtype=np.float32)
    block = max(1, CANDIDATES_AT_A_TIME // shortlists.shape[1])
    for first in range(0, len(queries), block):
        rows = slice(first, first + block)
        scores[rows] = np.einsum("qsd,qd->qs", decoded[places[rows]], queries[rows])
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    items = np.take_along_axis(shortlists, best, axis=1).astype(np.int32)
    assert (items != NOTHING).all(), "the additive index scores every item"
    return SearchResult(items, np.take_along_axis(scores, best, axis=1))


def residual_codebooks(vectors: Float32Array, *, steps: int, seed: int) -> Float32Array:
    """Codebooks (steps, codewords, size) of faiss' residual quantiser; 256 codewords, fewer for fewer vectors."""
    import faiss

    count, size = vectors.shape
    quantiser = faiss.ResidualQuantizer(size, steps, min(8, count.bit_length() - 1))
    quantiser.max_beam_size = 1  # as the codes are chosen later; a wider beam here means larger errors there
    quantiser.cp.seed = seed % 2**31
    quantiser.cp.min_points_per_centroid = 1
    quantiser.train(vectors)
    codebooks: Float32Array = faiss.vector_to_array(quantiser.codebooks).reshape(steps, -1, size)
    return codebooks


def additive_index(codes: AnyArray, *, start: Float32Array, vectors: Float32Array) -> Any:
    """faiss' scan of additive codes (items, steps), with the codebooks that fit the vectors best, near the start's."""
    import faiss
    from scipy import sparse

    count, steps = codes.shape
    _, codewords, size = start.shape
    columns = codes.astype(np.int64) + codewords * np.arange(steps)
    ones = np.ones(columns.size, dtype=np.float64)
    used = sparse.csr_array((ones, columns.ravel(), np.arange(0, columns.size + 1, steps)), (count, steps * codewords))
    flat = start.reshape(-1, size).astype(np.float64)
    normal = (used.T @ used).toarray() + RIDGE * np.eye(steps * codewords)
    fitted = flat + np.linalg.solve(normal, used.T @ (vectors - used @ flat))
    padded = np.zeros((steps, 256, size), dtype=np.float32)
    padded[:, :codewords] = fitted.reshape(start.shape)
    index = faiss.IndexResidualQuantizer(
        size, steps, 8, faiss.METRIC_INNER_PRODUCT, faiss.AdditiveQuantizer.ST_LUT_nonorm
    )
    faiss.copy_array_to_vector(padded.ravel(), index.rq.codebooks)
    index.rq.is_trained = index.is_trained = True
    index.add_sa_codes(np.ascontiguousarray(codes))
    return index
