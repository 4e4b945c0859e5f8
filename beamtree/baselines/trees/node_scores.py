"""Scores of nodes with gradients, for losses written in torch, and the learner of such a loss."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from beamtree import native
from beamtree.config import Config
from beamtree.data.requests import Requests
from beamtree.errors import InputError
from beamtree.model.attention import Attention
from beamtree.model.part import PreparedPart, ReadRows
from beamtree.model.score import ATTENTION, Score, attention_alone
from beamtree.native.network import AttentionGradients, Network
from beamtree.training.instances import Batch
from beamtree.training.module_learner import BatchPart, ModuleLearner
from beamtree.types import Int32Array

NodeLoss = Callable[[Score, Batch, torch.Generator], Tensor]
"""From a score, a batch and a generator, for all that it draws, to a scalar."""


PARTS = 2
"""Parts of a batch that are learned from side by side; a fixed number, so that their sum is the same everywhere."""


def learner_of(loss: NodeLoss, score: Score, *, config: Config) -> ModuleLearner[Score]:
    """Learns a score of attention alone by a loss; a step updates the rows of the tables that it reads."""
    tables = {id(table) for table in score.tables().values()}
    names = [name for name, parameter in score.named_parameters() if id(parameter) in tables]
    return ModuleLearner(score, loss=loss, seed=config.training.seed, tables=names, divide=in_parts)


def in_parts(batch: Batch) -> list[BatchPart]:
    """A batch in parts of nearly one size, none of them empty."""
    cuts = np.linspace(0, len(batch), min(PARTS, len(batch)) + 1).astype(int)
    return [
        BatchPart(
            Batch(
                histories=batch.histories.take(slice(first, end)),
                targets=batch.targets[first:end],
                users=None if batch.users is None else batch.users[first:end],
                times=None if batch.times is None else batch.times[first:end],
            ),
            (end - first) / len(batch),
        )
        for first, end in pairwise(cuts)
    ]


class PrepareNodes(Protocol):
    """Gives the function that scores nodes for requests."""

    def __call__(self, score: Score, requests: Requests, *, dropout: torch.Generator | None) -> PreparedPart:
        """dropout: draws the masks of training; None where nothing is dropped."""


class NodeScores:
    """Scores of nodes for requests, as `PreparedScore` has them, of a score of attention alone.

    The attention unit is computed by the kernels, where they were compiled. dropout: draws the masks of training; None
    where nothing is dropped. InputError where the score has another part.
    """

    def __init__(self, score: Score, requests: Requests, *, dropout: torch.Generator | None) -> None:
        attention = attention_alone(score)
        if attention is None:
            raise InputError(f"Expected a score of attention alone, got the parts {', '.join(score.parts)}.")
        self._attention = attention
        self._read = _read_rows(score)
        self._dropout = dropout
        self._histories: Int32Array = requests.histories.latest(attention.settings.attention_history)

    def __call__(self, levels: Sequence[int], nodes: Tensor) -> Tensor:
        """Scores (levels, requests, columns) of nodes numbered over the whole tree, -inf where there is none (-1)."""
        attention = self._attention
        if attention.item_table is not None:
            # The history is the same on all levels: their nodes can stand side by side.
            columns = nodes.transpose(0, 1).flatten(1, 2)
            found = self._score(attention.history_rows(self._histories, 0), columns, table="item_table")
            by_level: Tensor = found.unflatten(1, (len(levels), -1)).transpose(0, 1)
            return by_level
        rows = np.concatenate([attention.history_rows(self._histories, level) for level in levels])
        return self._score(rows, nodes.flatten(0, 1), table="node_table").reshape(nodes.shape)

    def _score(self, rows: np.ndarray[tuple[int, int], np.dtype[np.int64]], nodes: Tensor, *, table: str) -> Tensor:
        """Scores (rows, columns) of nodes (rows, columns) for histories (rows, positions), rows of their table."""
        attention, history_rows = self._attention, torch.from_numpy(rows)
        history, vectors = (
            self._read(f"{ATTENTION}/{table}", history_rows),
            self._read(f"{ATTENTION}/node_table", nodes),
        )
        attend = partial(attention_weights, attention) if native.is_available() else attention.attention
        weights = attend(history, vectors) * (history_rows >= 0).unsqueeze(1)
        lengths = list(attention.windows)
        windows = zip(weights.split(lengths, dim=2), history.split(lengths, dim=1), strict=True)
        interests = [torch.bmm(of_window, items) for of_window, items in windows]
        first_layer = attention.mlp.linear(0)(torch.cat([*interests, vectors], dim=-1))
        scores: Tensor = attention.score_first_layer(
            first_layer, candidates=nodes >= 0, dropout_generator=self._dropout
        )
        return scores


def _read_rows(score: Score) -> ReadRows:
    """Reads rows of a score's tables, by full name, so that gradients are sparse; zeros for -1, which touch nothing."""
    tables = score.tables()

    def read(table: str, rows: Tensor) -> Tensor:
        flat = rows.flatten()
        present = torch.nonzero(flat >= 0).squeeze(1)
        vectors = embedding(flat[present], tables[table], sparse=True)
        zeros = vectors.new_zeros(len(flat), vectors.shape[1])
        read_in_place: Tensor = zeros.index_copy(0, present, vectors).unflatten(0, rows.shape)
        return read_in_place

    return read


ROWS_AT_A_TIME = 64
"""Histories whose gradients are in memory together, each with sums of its own."""
UNIT = ("hidden.weight", "hidden.bias", "hidden_slope", "output.weight", "output.bias", "output_slope")
"""The parameters of the attention unit by name."""


def attention_weights(attention: Attention, history: Tensor, nodes: Tensor) -> Tensor:
    """Weights (rows, columns, positions) for history (rows, positions, size) and nodes (rows, columns, size).

    In the kernels, with gradients for torch: the most expensive part of scoring nodes, by far.
    """
    parameters = [attention.attention.get_parameter(name) for name in UNIT]
    network = Network.pack(attention.state_dict(), windows=attention.windows)
    weights: Tensor = _Weights.apply(network, history, nodes, *parameters)  # type: ignore[no-untyped-call]
    return weights.transpose(1, 2)


class _Weights(torch.autograd.Function):
    """Weights (rows, positions, columns) as the kernels compute them."""

    @staticmethod
    def forward(ctx: Any, network: Network, history: Tensor, nodes: Tensor, *parameters: Tensor) -> Tensor:
        history, nodes = history.contiguous(), nodes.contiguous()
        ctx.save_for_backward(history, nodes, *parameters)
        ctx.network = network
        return torch.from_numpy(network.attention_weights(history, nodes))

    @staticmethod
    def backward(ctx: Any, *d_weights: Tensor) -> tuple[Tensor | None, ...]:
        history, nodes, *parameters = ctx.saved_tensors
        given = d_weights[0].contiguous()
        found: list[AttentionGradients] = []
        for first in range(0, len(history), ROWS_AT_A_TIME):
            rows = slice(first, first + ROWS_AT_A_TIME)
            found.append(ctx.network.attention_gradients(history[rows], nodes[rows], d_weights=given[rows]))
        of_unit = [
            torch.from_numpy(np.sum([part.weights[f"attention.{name}"] for part in found], axis=0)).view_as(parameter)
            for name, parameter in zip(UNIT, parameters, strict=True)
        ]
        of_history = torch.from_numpy(np.concatenate([part.vectors for part in found]))
        of_nodes = torch.from_numpy(np.concatenate([part.nodes for part in found]))
        return None, of_history, of_nodes, *of_unit
