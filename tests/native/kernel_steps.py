"""Single steps of the kernels, which the product takes only as a whole: drawing, learning, scoring rows, dropout."""

from __future__ import annotations

from beamtree.native import _kernels
from beamtree.native.attention import AttentionArrays
from beamtree.native.training import NO_DROPOUT, Dropout, Gradients, Negatives, gradients_of
from beamtree.native.tree import kernel_tree
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array, Int32Array, Int64Array


def score_rows(
    attention: AttentionArrays,
    node_rows: Int64Array,
    *,
    history_rows: Int64Array,
    layer_offset: AnyArray | None = None,
) -> AnyArray:
    """Scores (n,) of rows (n,) of the node table for one history (positions,), rows of its table, -1 = padding.

    layer_offset: (width,), added to the first layer.
    """
    return _kernels.score_rows(
        attention.kernel, node_rows=node_rows, history_rows=history_rows, layer_offset=layer_offset
    )


def learn_candidates(
    attention: AttentionArrays,
    *,
    node_rows: Int64Array,
    log_correction: AnyArray,
    history_rows: Int64Array,
    weights: AnyArray,
    layer_offsets: AnyArray | None = None,
    dropout: Dropout = NO_DROPOUT,
) -> Gradients:
    """Loss and gradients of given candidates: mean over rows of weight * (logsumexp(o - correction) - o_0).

    node_rows, log_correction: (rows, columns), -1 where a column is absent, column 0 the positive; history_rows:
    (rows, positions), -1 = padding, in the item table where there is one; weights: (rows,); layer_offsets:
    (rows, width), added to the first layer. Rows without negatives have loss 0. Float32, or float64 throughout.
    """
    return gradients_of(
        _kernels.candidates_step(
            attention.kernel,
            node_rows=node_rows,
            log_correction=log_correction,
            history_rows=history_rows,
            weights=weights,
            layer_offsets=layer_offsets,
            dropout=dropout.kernel(),
        )
    )


def draw_candidates(
    attention: AttentionArrays,
    tree: ItemTree,
    *,
    histories: Int32Array,
    targets: Int32Array,
    negatives: Negatives,
    seed: int,
    layer_offsets: Float32Array | None = None,
    dropout: Dropout = NO_DROPOUT,
    first_level: int = 1,
) -> tuple[Int64Array, Float32Array]:
    """What `learn_batch` draws: node_rows and log_correction (instances * height, columns), merged, positive first.

    targets: (instances,). Row instance * height + level - 1; rows that are not learned from hold -1 throughout.
    """
    return _kernels.draw(
        attention.float32_kernel,
        kernel_tree(tree),
        histories=histories,
        targets=targets[:, None],
        layer_offsets=layer_offsets,
        sampling=negatives.kernel(seed=seed),
        dropout=dropout.kernel(),
        first_level=first_level,
    )


def dropout_factors(dropout: Dropout, *, row: int, columns: int, units: int) -> Float32Array:
    """What the first layer of a row of candidates is multiplied with: (columns, units), 0 or 1 / (1 - rate).

    Columns count the candidates that are present.
    """
    return _kernels.dropout_factors(dropout.kernel(), row=row, columns=columns, units=units)
