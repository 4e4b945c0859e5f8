"""All combinations of index and vectors, as baselines by name."""

from functools import partial

from beamtree.baselines.indexes.index import BuildIndex, IndexBaseline
from beamtree.baselines.indexes.ip_nsw import IpNsw
from beamtree.baselines.indexes.ivf_pq import IvfPq
from beamtree.baselines.indexes.qinco import Qinco
from beamtree.baselines.indexes.rotlex import Rotlex
from beamtree.baselines.indexes.scann import PUBLISHED_SCANN, SCANN
from beamtree.baselines.indexes.vectors import MakeVectors, din_vectors, sasrec_vectors
from beamtree.baselines.registry import Entry

_INDEXES: tuple[tuple[str, str, BuildIndex, tuple[str, ...]], ...] = (
    ("scann", "ScaNN, sqrt(items) leaves, reordered by exact scores", SCANN, ("scann",)),
    ("scann-published", "ScaNN as published, quantised scores alone", PUBLISHED_SCANN, ("scann",)),
    ("ip-nsw", "a graph of inner products (HNSW)", IpNsw(), ("faiss",)),
    ("ivf-pq", "inverted lists with product quantisation", IvfPq(), ("faiss",)),
    ("qinco", "residual quantisation by a network", Qinco(), ("faiss", "scipy")),
    ("rotlex", "a learned tree of buckets", Rotlex(), ("faiss", "scipy")),
)

_SOURCES: tuple[tuple[str, str, MakeVectors], ...] = (
    ("mean", "DIN's item vectors, query: mean of the history", din_vectors),
    ("sasrec", "SASRec's item vectors and query", sasrec_vectors),
)

ENTRIES: tuple[Entry, ...] = tuple(
    Entry(
        partial(IndexBaseline, f"{index}-{source}", vectors=vectors, build=build),
        f"{what} over {whose}",
        libraries=("torch", *libraries),
        extra="baselines,train",
        learns=True,
    )
    for index, what, build, libraries in _INDEXES
    for source, whose, vectors in _SOURCES
)
"""In the order of tables."""
