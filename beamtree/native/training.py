"""Training steps on the CPU: negatives, forward pass, loss and backward pass in one call, and Adam on table rows.

All randomness is a hash of a seed and of what it is for, and sums are added in an order that depends on the batch
alone: a step gives the same bytes for any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from beamtree.native import _kernels
from beamtree.native.attention import AttentionArrays
from beamtree.native.network import Array, plain
from beamtree.native.tree import kernel_tree
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array, Int32Array, Int64Array


@dataclass(frozen=True)
class RowGradients:
    """Gradients (rows, size) of the table rows (rows,) that a step touched; rows rise and are distinct."""

    rows: Int64Array
    values: AnyArray


@dataclass(frozen=True)
class Gradients:
    """What a step gives: its loss, and the gradients by the small weights, the node table and the item table.

    items is empty where history items are read from the node table. layer_offsets: (instances, first layer's width), by
    what the instances add to the first layer; None where they add nothing. work counts what was computed: (history row,
    node) pairs and nodes of the forward and the backward pass, history rows prepared and learned.
    """

    loss: float
    weights: dict[str, AnyArray]
    nodes: RowGradients
    items: RowGradients
    layer_offsets: AnyArray | None
    work: dict[str, float]


@dataclass(frozen=True)
class Dropout:
    """Dropout on the first perceptron layer: its rate, and the seed of its masks."""

    rate: float = 0.0
    seed: int = 0

    def kernel(self) -> _kernels.Dropout:
        """As the kernels read it; ValueError where the rate is not in [0, 1)."""
        return _kernels.Dropout(self.rate, self.seed)


NO_DROPOUT = Dropout()


PathStart = Literal["level", "root", "every"]


@dataclass(frozen=True)
class Negatives:
    """How negatives are drawn. counts: (height,), draws for levels 1 to height; smaller levels are taken whole.

    sampler: "uniform" over the level, or "top_down" with the model itself. start: where top-down sampling begins, at
    the exact softmax of the first level that is not taken whole ("level"), at the root ("root"), or again at that of
    every level ("every"); "level" begins uniformly where that is the first of the last levels, which alone are learned.
    correct_positive: whether top-down q is divided by 1 - q of the positive, which makes it a distribution over the
    negatives. with_dropout: whether top-down sampling goes by scores with dropout. Other values of these three than the
    default are the paper's variants, which `research` draws.
    """

    counts: Int64Array
    sampler: Literal["uniform", "top_down"] = "uniform"
    start: PathStart = "level"
    correct_positive: bool = True
    with_dropout: bool = False

    def kernel(self, *, seed: int) -> _kernels.Sampling:
        """As the kernels read it for one step; ValueError where a count is below 1 or a name is unknown."""
        return _kernels.Sampling(
            sampler=self.sampler,
            negatives=self.counts,
            start=self.start,
            correct_positive=self.correct_positive,
            with_dropout=self.with_dropout,
            seed=seed,
        )


def learn_batch(
    attention: AttentionArrays,
    tree: ItemTree,
    *,
    histories: Int32Array,
    targets: Int32Array,
    negatives: Negatives,
    seed: int,
    weights: Float32Array | None = None,
    dropout: Dropout = NO_DROPOUT,
    first_level: int = 1,
    layer_offsets: Float32Array | None = None,
) -> Gradients:
    """Loss and gradients of a batch, the mean over its instances and the levels from `first_level` on.

    histories: (instances, positions), -1 in front; targets: (instances, targets), -1 = none; weights: (instances,
    targets, height), for levels 1 to height; None = the targets of a history share 1 evenly. They share its negatives
    too. Repeated draws are merged with their counts; a draw of the positive is left out. first_level: levels above it
    are neither drawn on, scored nor learned; ValueError where top-down sampling is to begin at the root. layer_offsets:
    (instances, first layer's width), added to the first layer of an instance for all nodes alike; None = nothing.
    """
    return gradients_of(
        _kernels.batch_step(
            attention.float32_kernel,
            kernel_tree(tree),
            histories=histories,
            targets=targets,
            weights=weights,
            layer_offsets=layer_offsets,
            sampling=negatives.kernel(seed=seed),
            dropout=dropout.kernel(),
            first_level=first_level,
        )
    )


def adam_rows(
    table: Array,
    *,
    first_moment: Array,
    second_moment: Array,
    gradients: RowGradients,
    learning_rate: float,
    step: int,
    weight_decay: float,
    decoupled_decay: bool,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
) -> None:
    """Adam in place on the touched rows of a table (rows, size) and its moments; other rows are unchanged.

    `step` counts from 1 and corrects the bias of both moments, for all rows alike.
    """
    _kernels.adam(
        plain(table),
        first_moment=plain(first_moment),
        second_moment=plain(second_moment),
        rows=gradients.rows,
        gradients=gradients.values,
        settings=_kernels.AdamSettings(
            learning_rate=learning_rate,
            beta1=betas[0],
            beta2=betas[1],
            epsilon=epsilon,
            weight_decay=weight_decay,
            decoupled=decoupled_decay,
            step=step,
        ),
    )


def gradients_of(step: _kernels.Step) -> Gradients:
    """What a kernel returns of a step, by name."""
    loss, weights, node_rows, node_values, item_rows, item_values, layer_offsets, work = step
    return Gradients(
        loss=loss,
        weights=weights,
        nodes=RowGradients(node_rows, node_values),
        items=RowGradients(item_rows, item_values),
        layer_offsets=layer_offsets,
        work=work,
    )
