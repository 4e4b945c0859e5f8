"""The preference network: DIN with time windows, in plain torch, written as its formulas read.

This is the judge of correctness: `scoring.py` evaluates the same function in factored form, the native kernels again.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from beamtree.config import ModelSettings
from beamtree.tree.item_tree import ItemTree


class PreferenceModel(nn.Module):
    """Scores tree nodes for histories of items (Eq. 1 to 5).

    `node_table` has a row for each node of the tree, level by level. History items are read from the same table, as
    their ancestors on the level that is scored, or from `item_table` when the settings ask for a table of their own.
    """

    def __init__(self, settings: ModelSettings, *, num_nodes: int, num_items: int, generator: torch.Generator) -> None:
        super().__init__()
        size, widths = settings.embedding_dim, settings.layers
        self.windows = settings.windows
        self.dropout = settings.dropout
        self.node_table = nn.Parameter(torch.empty(num_nodes, size))
        separate = settings.history_table == "separate"
        self.item_table = nn.Parameter(torch.empty(num_items, size)) if separate else None
        self.attention = AttentionUnit(size, hidden=settings.attention_hidden)
        self.mlp = Layers([(len(settings.windows) + 1) * size, *widths, 1])
        self.norm = nn.ModuleList(_NORMALISATIONS[settings.normalisation](width) for width in widths)
        self._initialise(generator)

    @property
    def history_table(self) -> Tensor:
        """The table that history rows index: (rows, size)."""
        return self.node_table if self.item_table is None else self.item_table

    def network_parameters(self) -> list[nn.Parameter]:
        """Everything but the tables: the small weights that every step touches."""
        return [parameter for name, parameter in self.named_parameters() if name not in TABLES]

    def forward(
        self,
        history: Tensor,
        nodes: Tensor,
        *,
        present: Tensor,
        candidates: Tensor | None = None,
        dropout_generator: torch.Generator | None = None,
    ) -> Tensor:
        """Scores (rows, columns) of `nodes` (rows, columns, size) for `history` (rows, positions, size).

        present: (rows, positions), False for padding, which contributes exactly nothing.
        candidates: (rows, columns), False for columns that hold no node; they score -inf.
        """
        weights = self.attention(history, nodes) * present.unsqueeze(1)
        weighted = weights.unsqueeze(-1) * history.unsqueeze(1)
        interests = [window.sum(dim=2) for window in weighted.split(list(self.windows), dim=2)]
        first_layer = self.mlp.linear(0)(torch.cat([*interests, nodes], dim=-1))
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
            hidden = _drop(hidden, self.dropout, generator=dropout_generator)
        hidden = functional.prelu(hidden, self.mlp.slopes[0])
        for layer in (1, 2):
            hidden = functional.prelu(self.norm[layer](self.mlp.linear(layer)(hidden)), self.mlp.slopes[layer])
        scores = torch.full(candidates.shape, -torch.inf, dtype=hidden.dtype, device=hidden.device)
        return scores.masked_scatter(candidates, self.mlp.linear(3)(hidden))

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        for name, parameter in self.named_parameters():
            if name in TABLES:
                parameter.normal_(0.0, TABLE_SCALE, generator=generator)
            elif name.startswith("norm."):
                continue
            elif name.endswith(".weight"):
                parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                parameter.fill_(0.25)


class AttentionUnit(nn.Module):
    """The weight of each history item for each node: [a; a*w; w] -> hidden -> 1, PReLU after both (Eq. 2)."""

    def __init__(self, size: int, *, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(3 * size, hidden)
        self.hidden_slope = nn.Parameter(torch.empty(1))
        self.output = nn.Linear(hidden, 1)
        self.output_slope = nn.Parameter(torch.empty(1))

    def forward(self, history: Tensor, nodes: Tensor) -> Tensor:
        """Weights (rows, columns, positions) for history (rows, positions, size) and nodes (rows, columns, size)."""
        items, targets = torch.broadcast_tensors(history.unsqueeze(1), nodes.unsqueeze(2))
        hidden = self.hidden(torch.cat([items, items * targets, targets], dim=-1))
        return self.weigh(hidden)

    def weigh(self, hidden: Tensor) -> Tensor:
        """From the hidden layer's sums (..., hidden) to weights (...)."""
        activated = functional.prelu(hidden, self.hidden_slope)
        return functional.prelu(self.output(activated).squeeze(-1), self.output_slope)


class Layers(nn.ModuleList):
    """The linear layers between the given widths, with one PReLU slope for each hidden one."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__(nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths))
        self.slopes = nn.Parameter(torch.empty(len(widths) - 2))

    def linear(self, index: int) -> nn.Linear:
        """The layer with this index."""
        layer = self[index]
        assert isinstance(layer, nn.Linear)
        return layer


TABLES = frozenset({"node_table", "item_table"})
TABLE_SCALE = 0.3

_NORMALISATIONS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda _: nn.Identity(),
    "layer": nn.LayerNorm,
    "batch": nn.BatchNorm1d,
}


def build_model(settings: ModelSettings, tree: ItemTree, *, seed: int) -> PreferenceModel:
    """A freshly initialised model for a tree; the same seed gives the same bytes."""
    generator = torch.Generator().manual_seed(seed)
    return PreferenceModel(settings, num_nodes=tree.num_nodes, num_items=tree.num_items, generator=generator)


def _drop(hidden: Tensor, share: float, *, generator: torch.Generator) -> Tensor:
    kept = torch.full(hidden.shape, 1.0 - share, dtype=hidden.dtype, device=hidden.device)
    return hidden * torch.bernoulli(kept, generator=generator) / (1.0 - share)
