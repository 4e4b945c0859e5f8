"""The tower, a part of the score: a history is encoded once, and a node costs an inner product with its own vector.

score(u, n) = weight * <e(u), v_n>. e(u) is what the sequence encoder expects after the history, and, where features of
users and contexts are read, the offset that these add to it; v_n is a row of a table with one row per node, whose leaf
rows are also the vectors of the history's items. On the leaves alone, with the rows and the encoder of a learned model
of the next item, this is that model.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from beamtree.config import Config
from beamtree.data.requests import Requests
from beamtree.errors import ArtefactError, InputError
from beamtree.model.encoders import encoder_like
from beamtree.model.layers import drop
from beamtree.model.next_item import NextItemModel
from beamtree.model.part import MakePartOnTree, Part, PreparedPart, ReadRows
from beamtree.model.sequence_encoder import Dropout, SequenceEncoder, initialise, keep
from beamtree.native.encoder_arrays import encoder_sizes
from beamtree.native.offset_arrays import OffsetArrays
from beamtree.native.shapes import checked_shape
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, AnyArray, Float32Array, Int32Array, Int64Array

TOWER = "tower"
"""The name of the part in a score."""


class OffsetTables(nn.Module):
    """Tables of features, by names such as user.embedding, that a tower reads and does not learn."""

    @classmethod
    def like(cls, arrays: Mapping[str, AnyArray]) -> "OffsetTables | None":
        """Of the sizes of stored arrays, such as offset.user.embedding; None where there are none."""
        module = cls()
        for name, array in arrays.items():
            part, _, own = name.partition(".")
            if part == "offset":
                owner, _, table = own.partition(".")
                if not hasattr(module, owner):
                    module.add_module(owner, nn.Module())
                module.get_submodule(owner).register_buffer(table, torch.zeros(array.shape))
        return module if len(module.state_dict()) else None

    def offsets(self, requests: Requests) -> Float32Array | None:
        """What requests add to their encoded histories, (requests, width); None where they say nothing."""
        named = {f"offset.{name}": tensor.cpu().numpy() for name, tensor in self.state_dict().items()}
        tables = OffsetArrays.of(named, width=next(iter(named.values())).shape[1])
        return None if tables is None else tables.offsets(requests)


class Tower(Part):
    """Scores nodes by their inner product with the encoded history.

    `weight` is the weight of the part in the sum: a buffer, because it is calibrated on held-out users and not trained
    with the encoder. dropout: the dropout rate in training. offset: tables of the features of users and contexts,
    buffers too; None if none are read.
    """

    tables = node_tables = frozenset({"node_table"})

    def __init__(
        self,
        tree: ItemTree,
        encoder: SequenceEncoder,
        *,
        dropout: float,
        generator: torch.Generator,
        offset: "OffsetTables | None" = None,
    ) -> None:
        """Around a fresh encoder, which is initialised together with the table."""
        super().__init__()
        self.tree = tree
        self.dropout = dropout
        self.node_table = nn.Parameter(torch.empty(tree.num_nodes, encoder.width))
        self.encoder = encoder
        self.register_buffer("weight", torch.ones(()))
        initialise(self, generator)
        self.offset = offset

    def prepare(self, requests: Requests, *, read: ReadRows, dropout: torch.Generator | None) -> PreparedPart:
        """Encode the latest items of each history, once for all levels."""
        items = requests.histories.latest(self.encoder.history_length)
        rows = torch.from_numpy(_leaf_rows(self.tree, items)).to(self.device)
        dropped: Dropout = keep
        if dropout is not None and self.dropout > 0.0:
            dropped = partial(drop, share=self.dropout, generator=dropout)
        encoded = self.encoder.expectation(read("node_table", rows), present=rows >= 0, dropout=dropped)
        offsets = None if self.offset is None else self.offset.offsets(requests)
        if offsets is not None:
            encoded = encoded + torch.from_numpy(offsets).to(encoded.device)
        weighted = (self.get_buffer("weight") * encoded).unsqueeze(-1)

        def scores(_levels: Sequence[int], nodes: Tensor) -> Tensor:
            vectors = read("node_table", nodes)  # (levels, requests, columns, width)
            return (vectors @ weighted).squeeze(-1)

        return scores


def tower_of_sizes(arrays: Mapping[str, AnyArray]) -> MakePartOnTree:
    """What makes a fresh tower of the sizes of stored arrays, named as in `tower_arrays`.

    ArtefactError where arrays are missing or of impossible sizes.
    """
    try:
        width = checked_shape(arrays, "node_table", (None, None))[1]
        encoder_sizes(arrays, width=width)
        OffsetArrays.of(arrays, width=width)
    except InputError as error:
        raise ArtefactError(f"The tower of the score cannot be read: {error}") from error

    def make(tree: ItemTree, config: Config, generator: torch.Generator) -> Tower:
        encoder = encoder_like(arrays, width=width)
        offset = OffsetTables.like(arrays)
        return Tower(tree, encoder, dropout=config.estimator.recipe.dropout, generator=generator, offset=offset)

    return make


def tower_arrays(learned: NextItemModel, tree: ItemTree, *, inner: Float32Array) -> dict[str, AnyArray]:
    """The arrays of a tower, by name within the part, that scores leaves as a learned model scores items.

    inner: (nodes above the leaves, width), rows level by level. Vacant leaves have zero rows. InputError where the
    sizes do not fit.
    """
    items = learned.item_vectors()
    num_inner, width = int(tree.level_offsets[tree.height]), items.shape[1]
    if inner.shape != (num_inner, width) or len(items) != tree.num_items:
        raise InputError(
            f"Expected vectors {(num_inner, width)} of the inner nodes and {tree.num_items} items for this tree, got "
            f"{inner.shape} and {len(items)}. Give an estimator and vectors for the items of the tree."
        )
    node_table = np.zeros((tree.num_nodes, width), dtype=np.float32)
    node_table[:num_inner] = inner
    node_table[num_inner + tree.leaf_of_item] = items
    modules = {"encoder": learned.encoder} | ({} if learned.offset is None else {"offset": learned.offset})
    copied = {
        f"{part}.{name}": tensor.cpu().numpy().copy()
        for part, module in modules.items()
        for name, tensor in module.state_dict().items()
    }
    return {"node_table": node_table, "weight": np.array(1.0, dtype=np.float32), **copied}


def _leaf_rows(tree: ItemTree, items: Int32Array) -> Int64Array:
    """Rows of a table over all nodes for items (...), -1 stays -1."""
    leaves = tree.item_ancestors(items, tree.height)
    return np.where(leaves >= 0, leaves + tree.level_offsets[tree.height], NOTHING)
