"""Attention, the paper's part of the score: DIN with time windows (Eq. 1 to 5).

Features of users and contexts, where they are read, are further inputs of the first layer of the perceptron: what they
add to its sums is computed once per request, and the same for all nodes.

`forward` is written as the formulas read and judges the factored form of `scoring.py`, which learning and searching in
torch use; the kernels compute the same function again.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.config import Config, ModelSettings
from beamtree.data.request_features import RequestFeatures
from beamtree.data.requests import Requests
from beamtree.errors import ArtefactError, InputError
from beamtree.model.embedding_init import node_means, start_near
from beamtree.model.features import RequestVectors
from beamtree.model.layers import NORMALISATIONS, AttentionUnit, Layers, drop
from beamtree.model.part import MakePartOnTree, Part, PreparedPart, ReadRows
from beamtree.model.scoring import FirstLayer, first_layer_in_blocks
from beamtree.native.offset_arrays import OffsetArrays
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, AnyArray, Float32Array, Int32Array, Int64Array

TABLE_SCALE = 0.3


class Attention(Part):
    """Scores tree nodes for the latest items of a history.

    `node_table` has a row for each node of the tree, level by level. History items are read from the same table, as
    their ancestors on the level that is scored, or from `item_table` if histories have a separate table.
    `offset` holds the features of users and contexts, added to the first layer; None if none are read.
    """

    tables = frozenset({"node_table", "item_table"})
    node_tables = frozenset({"node_table"})

    def __init__(
        self,
        settings: ModelSettings,
        tree: ItemTree,
        *,
        generator: torch.Generator,
        offset: RequestVectors | None = None,
    ) -> None:
        super().__init__()
        size, widths = settings.embedding_dim, settings.layers
        self.tree = tree
        self.settings = settings
        self.windows = settings.windows
        self.dropout = settings.network.dropout
        self.node_table = nn.Parameter(torch.empty(tree.num_nodes, size))
        separate = settings.network.history_table == "separate"
        self.item_table = nn.Parameter(torch.empty(tree.num_items, size)) if separate else None
        self.attention = AttentionUnit(size, hidden=settings.network.attention_hidden)
        self.mlp = Layers([(len(self.windows) + 1) * size, *widths, 1])
        self.norm = nn.ModuleList(NORMALISATIONS[settings.network.normalisation](width) for width in widths)
        self._initialise(generator)
        self.offset = offset

    def prepare(self, requests: Requests, *, read: ReadRows, dropout: torch.Generator | None) -> PreparedPart:
        """Cut the histories; their rows are read separately on each level, as those of the ancestors there."""
        histories = requests.histories.latest(self.settings.attention_history)
        table = "node_table" if self.item_table is None else "item_table"
        offsets = None if self.offset is None else self.offset.of_requests(requests)

        def scores(levels: Sequence[int], nodes: Tensor) -> Tensor:
            rows = np.stack([self.history_rows(histories, level) for level in levels])
            history_rows = torch.from_numpy(rows).to(nodes.device).flatten(0, 1)
            node_rows = nodes.flatten(0, 1)
            first_layer = first_layer_in_blocks(
                FirstLayer(self.attention, self.mlp.linear(0), self.windows),
                read(table, history_rows),
                read("node_table", node_rows),
                present=history_rows >= 0,
            )
            if offsets is not None:
                first_layer = first_layer + offsets.repeat(len(levels), 1).unsqueeze(1)
            found = self.score_first_layer(first_layer, candidates=node_rows >= 0, dropout_generator=dropout)
            return found.reshape(nodes.shape)

        return scores

    def history_rows(self, items: Int32Array, level: int) -> Int64Array:
        """Rows of the history's table for items (...) when nodes of `level` are scored; -1 stays -1."""
        if self.item_table is not None:
            return items.astype(np.int64)
        ancestors = self.tree.item_ancestors(items, level)
        return np.where(ancestors >= 0, ancestors + self.tree.level_offsets[level], NOTHING)

    def forward(
        self,
        history: Tensor,
        nodes: Tensor,
        *,
        present: Tensor,
        offsets: Tensor | None = None,
        candidates: Tensor | None = None,
        dropout_generator: torch.Generator | None = None,
    ) -> Tensor:
        """Scores (rows, columns) of `nodes` (rows, columns, size) for `history` (rows, positions, size).

        present: (rows, positions), False for padding, which contributes exactly nothing. offsets: (rows, first layer's
        width), what the features of each row's request add to the first layer; None = nothing.
        candidates: (rows, columns), False for columns that hold no node; they score -inf.
        """
        weights = self.attention(history, nodes) * present.unsqueeze(1)
        weighted = weights.unsqueeze(-1) * history.unsqueeze(1)
        interests = [window.sum(dim=2) for window in weighted.split(list(self.windows), dim=2)]
        first_layer = self.mlp.linear(0)(torch.cat([*interests, nodes], dim=-1))
        if offsets is not None:
            first_layer = first_layer + offsets.unsqueeze(1)
        return self.score_first_layer(first_layer, candidates=candidates, dropout_generator=dropout_generator)

    def score_first_layer(
        self,
        first_layer: Tensor,
        *,
        candidates: Tensor | None = None,
        dropout_generator: torch.Generator | None = None,
    ) -> Tensor:
        """The rest of the network, from the first layer's sums (rows, columns, width) to scores (rows, columns)."""
        if candidates is None:
            candidates = torch.ones(first_layer.shape[:2], dtype=torch.bool, device=first_layer.device)
        hidden = self.norm[0](first_layer[candidates])
        if dropout_generator is not None and self.dropout > 0.0:
            hidden = drop(hidden, self.dropout, generator=dropout_generator)
        hidden = functional.prelu(hidden, self.mlp.slopes[0])
        last = len(self.norm)
        for layer in range(1, last):
            hidden = functional.prelu(self.norm[layer](self.mlp.linear(layer)(hidden)), self.mlp.slopes[layer])
        scores = torch.full(candidates.shape, -torch.inf, dtype=hidden.dtype, device=hidden.device)
        return scores.masked_scatter(candidates, self.mlp.linear(last)(hidden))

    def start_from_items(self, item_vectors: Float32Array) -> None:
        """Move fresh tables to the items' unit vectors (items, size) and to their means below each node.

        Items and leaves get the length that the random rows had.
        """
        length = TABLE_SCALE * item_vectors.shape[1] ** 0.5
        start_near(self.node_table, node_means(self.tree, item_vectors), length=length)
        if self.item_table is not None:
            start_near(self.item_table, item_vectors, length=length)

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        for name, parameter in self.named_parameters():
            if name in self.tables:
                parameter.normal_(0.0, TABLE_SCALE, generator=generator)
            elif name.startswith("norm."):
                continue
            elif name.endswith(".weight"):
                parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                parameter.fill_(0.25)


def make_attention(tree: ItemTree, config: Config, generator: torch.Generator) -> Attention:
    """A fresh attention network of the sizes that the settings name."""
    return _make(tree, config, generator, offset=None)


def attention_reading(read: RequestFeatures) -> MakePartOnTree:
    """What makes a fresh attention network that reads these columns of users and contexts."""

    def make(tree: ItemTree, config: Config, generator: torch.Generator) -> Attention:
        return _make(tree, config, generator, offset=RequestVectors.of(read, width=config.model.layers[0]))

    return make


def attention_like(arrays: Mapping[str, AnyArray]) -> MakePartOnTree:
    """What makes a fresh attention network that reads the features that a stored one reads.

    arrays: by name within the part. ArtefactError where the tables of features are of impossible sizes.
    """

    def make(tree: ItemTree, config: Config, generator: torch.Generator) -> Attention:
        try:
            OffsetArrays.of(arrays, width=config.model.layers[0])
        except InputError as error:
            raise ArtefactError(f"The attention network of the score cannot be read: {error}") from error
        return _make(tree, config, generator, offset=RequestVectors.like(arrays))

    return make


def _make(tree: ItemTree, config: Config, generator: torch.Generator, *, offset: RequestVectors | None) -> Attention:
    attention = Attention(config.model, tree, generator=generator, offset=offset)
    attention.levels = None if config.model.attention_levels is None else config.model.attention_range(tree.height)
    return attention
