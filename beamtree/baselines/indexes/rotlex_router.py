"""ROTLEX's routing network, which predicts the buckets of a query's neighbours, trained in turn with the buckets."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.baselines.protocol import Budget
from beamtree.model.sequence_encoder import initialise
from beamtree.tree.build import clustering_order
from beamtree.types import Float32Array, Int32Array, Int64Array

TARGET_NEIGHBOURS = 10
"""Exact neighbours of a query whose buckets are the targets."""

ASSIGNED_NEIGHBOURS = 15
"""Exact neighbours of a query that its bucket probabilities count for, when items are re-assigned."""

MAX_ITEM_QUERIES = 4096
"""Items that are queries in an epoch, resampled each epoch."""

BATCH_SIZE = 256
LEARNING_RATE = 1e-3
ROWS_AT_A_TIME = 1024


class Encoder(nn.Module):
    """From vectors (rows, size) to the space of the nodes (rows, width): two layers with batch norm and SiLU."""

    def __init__(self, size: int, *, width: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Linear(size, width), nn.BatchNorm1d(width)
        self.second, self.second_norm = nn.Linear(width, width), nn.BatchNorm1d(width)

    def forward(self, vectors: Tensor) -> Tensor:
        """(rows, width)."""
        hidden = functional.silu(self.first_norm(self.first(vectors)))
        encoded: Tensor = functional.silu(self.second_norm(self.second(hidden)))
        return encoded


class Router(nn.Module):
    """Scores of the nodes of both levels: bucket b is below node b // branching of the first level."""

    def __init__(self, size: int, *, branching: int, width: int, seed: int) -> None:
        super().__init__()
        self.branching = branching
        self.query_encoder, self.item_encoder = Encoder(size, width=width), Encoder(size, width=width)
        self.nodes = nn.Parameter(torch.empty(branching, width))
        self.buckets = nn.Parameter(torch.empty(branching**2, width))
        initialise(self, torch.Generator().manual_seed(seed))

    @property
    def search_bytes(self) -> int:
        """What a search needs: the encoder of queries and the nodes of both levels."""
        arrays = [*self.query_encoder.state_dict().values(), self.nodes, self.buckets]
        return sum(array.nbytes for array in arrays)

    def loss(self, encoded: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy on both levels towards target buckets (rows, targets), which share a row evenly."""
        on_nodes = functional.log_softmax(encoded @ self.nodes.T, dim=1).gather(1, targets // self.branching)
        on_buckets = functional.log_softmax(encoded @ self.buckets.T, dim=1).gather(1, targets)
        return -(on_nodes.mean() + on_buckets.mean())

    @torch.no_grad()
    def probabilities(self, encoder: Encoder, vectors: Float32Array) -> Float32Array:
        """Of the buckets (rows, buckets), for vectors (rows, size)."""
        self.eval()
        parts = torch.from_numpy(vectors).split(ROWS_AT_A_TIME)
        found = [functional.softmax(encoder(part) @ self.buckets.T, dim=1).numpy() for part in parts]
        return np.concatenate(found)

    @torch.no_grad()
    def best_buckets(self, queries: Float32Array, *, count: int) -> tuple[Int64Array, Float32Array]:
        """The best buckets (queries, count) by beam search, and their scores: as many nodes are kept above them."""
        self.eval()
        encoded = self.query_encoder(torch.from_numpy(queries))
        kept = (encoded @ self.nodes.T).topk(min(count, self.branching), dim=1).indices
        below = (kept.unsqueeze(2) * self.branching + torch.arange(self.branching)).flatten(1)
        scores = (encoded @ self.buckets.T).gather(1, below)
        best = scores.topk(min(count, below.shape[1]), dim=1)
        return below.gather(1, best.indices).numpy(), best.values.numpy()


@dataclass(frozen=True, eq=False)
class _Asked:
    """Vectors that are queries (rows, size), and their exact neighbours (rows, neighbours), nearest first."""

    vectors: Float32Array
    neighbours: Int32Array


def learn_buckets(
    vectors: Float32Array,
    queries: Float32Array,
    *,
    branching: int,
    width: int,
    rounds: int,
    epochs_per_round: int,
    budget: Budget,
) -> tuple[Router, Int64Array]:
    """A router in evaluation mode, and the bucket of each item (items,). vectors: (items, size); queries: (n, size)."""
    router = Router(vectors.shape[1], branching=branching, width=width, seed=budget.seed)
    generator = np.random.default_rng(budget.seed)
    asked = _Asked(queries, exact_neighbours(queries, vectors, count=ASSIGNED_NEIGHBOURS))
    item_sample = np.sort(generator.permutation(len(vectors))[: 4 * MAX_ITEM_QUERIES])
    own = _Asked(vectors[item_sample], exact_neighbours(vectors[item_sample], vectors, count=TARGET_NEIGHBOURS))
    bucket_of_item = first_buckets(vectors, branching=branching, generator=generator)
    optimiser = torch.optim.Adam(router.parameters(), lr=LEARNING_RATE)
    for number in range(rounds + 1):
        for _ in range(epochs_per_round):
            _train_epoch(router, asked, own, bucket_of_item, optimiser=optimiser, generator=generator, budget=budget)
        if number == rounds or (number and budget.is_spent):
            break
        bucket_of_item = _assigned(router, asked, vectors)
    return router.eval(), bucket_of_item


def exact_neighbours(queries: Float32Array, vectors: Float32Array, *, count: int) -> Int32Array:
    """Items (queries, count) of the highest inner products, best first; fewer columns where there are fewer items."""
    count = min(count, len(vectors))
    found = np.empty((len(queries), count), dtype=np.int32)
    for first in range(0, len(queries), ROWS_AT_A_TIME):
        rows = slice(first, first + ROWS_AT_A_TIME)
        products = queries[rows] @ vectors.T
        best = np.argpartition(-products, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(products, best, axis=1), axis=1, kind="stable")
        found[rows] = np.take_along_axis(best, order, axis=1)
    return found


def _train_epoch(
    router: Router,
    asked: _Asked,
    own: _Asked,
    bucket_of_item: Int64Array,
    *,
    optimiser: torch.optim.Optimizer,
    generator: np.random.Generator,
    budget: Budget,
) -> None:
    """Every query once, and some of the items beside them."""
    router.train()
    order = generator.permutation(len(asked.vectors))
    batches = max(1, len(order) // BATCH_SIZE)
    items = generator.permutation(len(own.vectors))[:MAX_ITEM_QUERIES]
    for rows, item_rows in zip(np.array_split(order, batches), np.array_split(items, batches), strict=True):
        budget.stop_if_asked()
        loss = torch.zeros(())
        for encoder, some, chosen in ((router.query_encoder, asked, rows), (router.item_encoder, own, item_rows)):
            if len(chosen) > 1:  # batch norm needs two
                targets = torch.from_numpy(bucket_of_item[some.neighbours[chosen, :TARGET_NEIGHBOURS]])
                loss = loss + router.loss(encoder(torch.from_numpy(some.vectors[chosen])), targets)
        if loss.requires_grad:
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def _assigned(router: Router, asked: _Asked, vectors: Float32Array) -> Int64Array:
    """The reassigned buckets of the items, by the current router."""
    by_queries = mean_over_askers(
        asked.neighbours, router.probabilities(router.query_encoder, asked.vectors), num_items=len(vectors)
    )

    def affinity(rows: slice) -> Float32Array:
        return by_queries(rows) + router.probabilities(router.item_encoder, vectors[rows])

    return assign_to_buckets(affinity, num_items=len(vectors), buckets=router.branching**2)


CAPACITY = 1.5
"""Items that a bucket may hold, in multiples of the mean."""

CONSIDERED_BUCKETS = 16
ITEMS_AT_A_TIME = 4096

Affinity = Callable[[slice], Float32Array]
"""From some items to their affinity to all buckets, (items, buckets)."""


def first_buckets(vectors: Float32Array, *, branching: int, generator: np.random.Generator) -> Int64Array:
    """Buckets (items,) of nearly one size, of items that stand side by side in a recursive balanced clustering."""
    order = clustering_order(vectors, branching=2, generator=generator)
    buckets = np.empty(len(order), dtype=np.int64)
    buckets[order] = np.arange(len(order)) * branching**2 // len(order)
    return buckets


def mean_over_askers(neighbours: Int32Array, probabilities: Float32Array, *, num_items: int) -> Affinity:
    """The mean of the probabilities (queries, buckets) over the queries that have an item among their neighbours.

    neighbours: (queries, neighbours); 0 for an item that is no neighbour.
    """
    from scipy import sparse

    count = neighbours.shape[1]
    ones = np.ones(neighbours.size, dtype=np.float32)
    has = sparse.csr_array((ones, neighbours.ravel(), np.arange(0, neighbours.size + 1, count)))
    has.resize((len(neighbours), num_items))
    asked = has.T.tocsr()
    askers = np.maximum(np.asarray(asked.sum(axis=1)).ravel(), 1.0)

    def affinity(rows: slice) -> Float32Array:
        return np.asarray(asked[rows] @ probabilities / askers[rows, None], dtype=np.float32)

    return affinity


def assign_to_buckets(affinity: Affinity, *, num_items: int, buckets: int) -> Int64Array:
    """The bucket of each item (items,): pairs in descending order of affinity, while there is room in the bucket.

    A bucket has room for `CAPACITY` x the mean. An item for which its `CONSIDERED_BUCKETS` best are all full goes to
    the bucket with most room.
    """
    considered = min(CONSIDERED_BUCKETS, buckets)
    best = np.empty((num_items, considered), dtype=np.int64)
    values = np.empty((num_items, considered), dtype=np.float32)
    for first in range(0, num_items, ITEMS_AT_A_TIME):
        rows = slice(first, first + ITEMS_AT_A_TIME)
        all_buckets = affinity(rows)
        best[rows] = np.argpartition(-all_buckets, considered - 1, axis=1)[:, :considered]
        values[rows] = np.take_along_axis(all_buckets, best[rows], axis=1)
    room = [int(np.ceil(CAPACITY * num_items / buckets))] * buckets
    bucket_of_item = [-1] * num_items
    candidates = best.ravel().tolist()
    for pair in np.argsort(-values.ravel(), kind="stable").tolist():
        item, bucket = pair // considered, candidates[pair]
        if bucket_of_item[item] < 0 and room[bucket] > 0:
            bucket_of_item[item] = bucket
            room[bucket] -= 1
    for item in [item for item, bucket in enumerate(bucket_of_item) if bucket < 0]:
        widest = max(range(buckets), key=room.__getitem__)
        bucket_of_item[item] = widest
        room[widest] -= 1
    return np.array(bucket_of_item, dtype=np.int64)
