"""LightGCN: vectors of users and items, smoothed over their graph (He et al., SIGIR 2020). Needs torch_geometric.

The DTR paper gives three layers and a graph of the users' histories; the first halves of held-out users are training
spans, and so in the graph. Taken from the LightGCN paper: the BPR loss, its weight of 1e-4 on the squared norms, and
batches of 2,048 pairs, because each step smooths the whole graph. Several targets for each history mean nothing here:
all items of a user are targets anyway.

Requests are answered by what is in the history. A user's vector is the sum of what the items pass on, and, where the
history has the very items of a user of the graph, of that user's own vector.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.baselines.neural.learning import learn
from beamtree.baselines.neural.recipe import AS_PUBLISHED, TUNED, NetworkSettings
from beamtree.baselines.neural.task import Task, svd_vectors, warm_start_of
from beamtree.baselines.popularity import scored_or_popular
from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Histories, Requests
from beamtree.data.split import Split
from beamtree.evaluation.answers import ScoredItems
from beamtree.fitting.computation import learning_device
from beamtree.model.embedding_init import NOISE, start_near
from beamtree.training.module_learner import ModuleLearner
from beamtree.training.randomness import torch_generator
from beamtree.types import AnyArray, Float32Array, Int64Array

PENALTY = 1e-4
SCALE = 0.1
"""Deviation of the first random numbers, as in the authors' code."""


@dataclass(frozen=True, kw_only=True)
class LightGcnSettings(NetworkSettings):
    """layers: how often the graph is smoothed."""

    layers: int


published = LightGcnSettings(
    name="lightgcn-published", recipe=replace(AS_PUBLISHED, batch_size=2048, epochs=100.0), width=24, layers=3
)
tuned = LightGcnSettings(name="lightgcn", recipe=replace(TUNED, batch_size=2048, epochs=100.0), width=64, layers=3)


class Pairs(NamedTuple):
    """Users of the graph and items that they had, both (pairs,)."""

    users: Int64Array
    items: Int64Array


@dataclass(frozen=True, eq=False)
class Graph:
    """Who had what, each pair once, by user and item: the instances that LightGCN learns from.

    Users are numbered as the training spans are. users, items: (pairs,).
    """

    users: Int64Array
    items: Int64Array
    num_users: int
    num_items: int

    @classmethod
    def of(cls, histories: Histories, *, num_items: int) -> "Graph":
        """The graph of these histories, each of a user."""
        flat = histories.flattened()
        rows = np.repeat(np.arange(len(flat)), flat.lengths)
        pairs = np.unique(rows * num_items + flat.items)
        return cls(pairs // num_items, pairs % num_items, len(histories), num_items)

    def __len__(self) -> int:
        return len(self.users)

    def batch(self, instances: Int64Array, *, epoch: int) -> Pairs:  # noqa: ARG002
        """The numbered pairs."""
        return Pairs(self.users[instances], self.items[instances])

    def state(self) -> dict[str, AnyArray]:
        """Nothing: a batch depends on the numbers of its pairs alone."""
        return {}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """There is nothing to remember."""

    def contains(self, pairs: Pairs) -> AnyArray:
        """Which pairs (pairs,) are in the graph."""
        known = self.users * self.num_items + self.items
        asked = pairs.users * self.num_items + pairs.items
        places = np.searchsorted(known, asked).clip(max=len(known) - 1)
        return np.asarray(known[places] == asked)

    def spans(self) -> list[slice]:
        """Where in the pairs each user's are."""
        ends = np.cumsum(np.bincount(self.users, minlength=self.num_users)).tolist()
        return [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]

    def item_degrees(self) -> Int64Array:
        """How many users had each item, at least 1, (items,)."""
        return np.maximum(1, np.bincount(self.items, minlength=self.num_items))

    def normalised(self) -> Tensor:
        """The symmetric adjacency matrix of users, then items, each edge over the root of both degrees; sparse CSR."""
        degrees = np.bincount(self.users, minlength=self.num_users)
        weights = 1.0 / np.sqrt(degrees[self.users] * self.item_degrees()[self.items])
        ends = np.stack([self.users, self.items + self.num_users])
        where, size = np.concatenate([ends, ends[::-1]], axis=1), self.num_users + self.num_items
        values = torch.from_numpy(np.tile(weights, 2).astype(np.float32))
        with warnings.catch_warnings():  # that CSR is in beta state
            warnings.simplefilter("ignore")
            return torch.sparse_coo_tensor(torch.from_numpy(where), values, (size, size)).to_sparse_csr()


class LightGcn(nn.Module):
    """The library's model over a graph; users come first, then the items."""

    def __init__(self, settings: LightGcnSettings, graph: Graph, *, generator: torch.Generator) -> None:
        super().__init__()
        with warnings.catch_warnings():  # of functions of torch that the library is yet to leave
            warnings.simplefilter("ignore")
            from torch_geometric.nn.models import LightGCN

        self.graph = graph
        self.adjacency = graph.normalised()
        self.model = LightGCN(graph.num_users + graph.num_items, settings.width, settings.layers, normalize=False)
        with torch.no_grad():
            self.vectors.normal_(0.0, SCALE, generator=generator)

    @property
    def vectors(self) -> nn.Parameter:
        """What is learned: the vectors before they are smoothed, (users and items, width)."""
        found: nn.Parameter = self.model.embedding.weight
        return found

    def smoothed(self) -> Tensor:
        """The vectors that are compared, (users and items, width)."""
        found: Tensor = _Smoothed.apply(self.vectors, self)  # type: ignore[no-untyped-call]
        return found

    def layers(self, vectors: Tensor) -> list[Tensor]:
        """Vectors (users and items, width), and as they are after each smoothing."""
        found = [vectors]
        for convolution in self.model.convs:
            found.append(convolution(found[-1], self.adjacency))
        return found

    def loss(self, pairs: Pairs, generator: torch.Generator) -> Tensor:
        """BPR of pairs against as many drawn items; a draw that the user had does not count."""
        from torch_geometric.nn.models.lightgcn import BPRLoss

        device, graph = self.vectors.device, self.graph
        drawn = torch.randint(graph.num_items, (len(pairs.users),), generator=generator, device=device)
        is_negative = torch.from_numpy(~graph.contains(Pairs(pairs.users, drawn.cpu().numpy()))).to(device)
        users, items = (torch.from_numpy(part).to(device) for part in pairs)
        nodes = torch.stack([users, items + graph.num_users, drawn + graph.num_users])[:, is_negative]
        # Unlike indexing, embedding adds the gradients of repeated nodes in a fixed order.
        user, item, other = functional.embedding(nodes, self.smoothed())
        penalised = functional.embedding(nodes, self.vectors)
        found: Tensor = BPRLoss(PENALTY)((user * item).sum(dim=1), (user * other).sum(dim=1), penalised)
        return found

    @torch.no_grad()
    def start(self, item_vectors: Float32Array) -> None:
        """Move the items to vectors (items, width), and users near 0: at first, what their items pass on decides."""
        users, items = self.vectors.split([self.graph.num_users, self.graph.num_items])
        users.mul_(NOISE)
        start_near(items, item_vectors)

    @torch.no_grad()
    def answers(self, dataset: Dataset, split: Split) -> ScoredItems:
        """What the vectors recommend as they are now; popular items where the history is empty."""
        graph, layers = self.graph, self.layers(self.vectors)
        share = 1.0 / len(layers)
        items = (share * torch.stack(layers).sum(dim=0))[graph.num_users :].cpu().numpy()
        own = (share * self.vectors[: graph.num_users]).cpu().numpy()
        roots = np.sqrt(graph.item_degrees(), dtype=np.float32)[:, None]
        passed_on = (share * torch.stack(layers[:-1]).sum(dim=0))[graph.num_users :].cpu().numpy() / roots
        users = {graph.items[span].tobytes(): user for user, span in enumerate(graph.spans())}

        def score(requests: Requests) -> Float32Array:
            queries = np.zeros((len(requests), items.shape[1]), dtype=np.float32)
            for row in range(len(requests)):
                had = np.unique(requests.histories.row(row)).astype(np.int64)
                queries[row] = passed_on[had].sum(axis=0) / np.sqrt(max(1, len(had)), dtype=np.float32)
                user = users.get(had.tobytes())
                if user is not None:
                    queries[row] += own[user]
            scores: Float32Array = queries @ items.T
            return scores

        return scored_or_popular(score, dataset, split)


class _Smoothed(torch.autograd.Function):
    """The mean of all layers: linear, and symmetric as the graph is, so that gradients are smoothed the same way."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, network: LightGcn) -> Tensor:
        ctx.network = network
        return torch.stack(network.layers(vectors)).mean(dim=0)

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None]:
        return torch.stack(ctx.network.layers(gradient[0])).mean(dim=0), None


def train(settings: LightGcnSettings, dataset: Dataset, split: Split, *, budget: Budget) -> Task[LightGcn]:
    """The network, learned or found."""
    recipe, num_items = settings.recipe, len(dataset.items)
    spans = Histories(dataset.sequences.items, split.train.start, split.train.end)
    graph = Graph.of(spans, num_items=num_items)
    vectors = svd_vectors(dataset, split, width=settings.width, seed=budget.seed)

    def make() -> Task[LightGcn]:
        generator = torch_generator(budget.seed, "weights", device=torch.device("cpu"))
        network = LightGcn(settings, graph, generator=generator).to(learning_device(budget.config))
        return Task(
            network,
            graph,
            make_learner=lambda: ModuleLearner(network, loss=LightGcn.loss, seed=budget.seed),
            answers=lambda: network.answers(dataset, split),
            warm_start=warm_start_of(recipe, network.start, vectors),
        )

    return learn(settings, make, dataset, split, budget=budget)
