"""One part of the score, in torch: whatever scores the nodes of a tree for histories and can be added to others.

docs/extending.md defines one from scratch, trains it, searches with it, saves and loads it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain
from typing import ClassVar, Protocol

import polars as pl
import torch
from torch import Tensor, nn

from beamtree.config import Config
from beamtree.data.requests import Requests
from beamtree.errors import InputError
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array


class ReadRows(Protocol):
    """Reads rows of tables. Where a part learns, it decides what gradients cost: the batch's size, not the table's."""

    def __call__(self, table: str, rows: Tensor) -> Tensor:
        """Vectors (..., size) of rows (...) of a table by name; -1, for none, reads row 0: mask what comes of it."""


PreparedPart = Callable[[Sequence[int], Tensor], Tensor]
"""From levels and nodes (levels, requests, columns) to their scores, the same shape.

Nodes are numbered over the whole tree, level by level, as the rows of a table with one row per node are; -1 holds none,
and whatever a part says there is masked. Broadcasting (requests, 1, size) against (levels, requests, columns, size)
brings a request's vector to its nodes.
"""


class Part(nn.Module, ABC):
    """One summand of the score: parameters, and a way from requests to scores of nodes.

    tables: parameters (rows, size) that are read through `read` only, so that a step of learning touches the rows of
    its batch and no other; node_tables: those of them with a row for each node, whose leaves' rows travel with the
    items when the tree is learned. All other parameters are small, and every step updates them.
    levels: where the part scores, None = everywhere; elsewhere it adds nothing and is never asked.
    """

    tables: ClassVar[frozenset[str]] = frozenset()
    node_tables: ClassVar[frozenset[str]] = frozenset()
    levels: range | None = None

    @abstractmethod
    def prepare(self, requests: Requests, *, read: ReadRows, dropout: torch.Generator | None) -> PreparedPart:
        """Do once what all levels need, and give the function that scores nodes for these requests.

        requests: whole histories; what is excluded or allowed is None in training. dropout: draws the masks of
        training; None where nothing is dropped.
        """

    def start_from_items(self, item_vectors: Float32Array) -> None:
        """Move fresh tables near unit vectors of the items (items, size); by default they stay where they are."""

    @property
    def device(self) -> torch.device:
        """Where the part's numbers live; the CPU where it has none."""
        first = next(chain(self.parameters(), self.buffers()), None)
        return torch.device("cpu") if first is None else first.device


class MakePart(Protocol):
    """Makes a fresh part for a tree: what the `parts` of a model are given as, by name."""

    def __call__(self, tree: ItemTree, config: Config, *, generator: torch.Generator, item_table: pl.DataFrame) -> Part:
        """The same part, up to its weights, for a fit and for each load of the model.

        generator: everything random comes from it. item_table: a row for each item in the order of the dense ids, with
        item_id, category, title (null where unknown) and all other columns of the table that was fitted with.
        """


MakePartOnTree = Callable[[ItemTree, Config, torch.Generator], Part]
"""Makes a fresh part where all that is known of the items is settled."""


def check_part(name: str, part: Part, tree: ItemTree) -> None:
    """InputError if a part declares tables that it does not have, or has no arrays that a saved model would show.

    name: what the part is called in its score.
    """
    parameters = dict(part.named_parameters())
    for table in sorted(part.tables | part.node_tables):
        if table not in part.tables:
            raise InputError(f"The part {name} has {table!r} in node_tables alone. Name it in tables too.")
        if getattr(part, table, table) is None:
            continue  # a table that these settings do without
        if table not in parameters:
            raise InputError(
                f"The part {name} names the table {table!r}, but its parameters are {', '.join(parameters) or 'none'}."
            )
        shape = tuple(parameters[table].shape)
        if len(shape) != 2:
            raise InputError(f"Expected the table {table!r} of the part {name} as (rows, size), got {shape}.")
        if table in part.node_tables and shape[0] != tree.num_nodes:
            raise InputError(
                f"Expected a row for each of {tree.num_nodes} nodes in the table {table!r} of the part {name}, got "
                f"{shape[0]}. Leave it out of node_tables unless its rows are nodes."
            )
    if not part.state_dict():
        raise InputError(
            f"The part {name} has no numbers that are saved, so that a loaded model would lack it unnoticed. Give it a "
            "parameter, such as its weight in the sum, or a buffer."
        )
