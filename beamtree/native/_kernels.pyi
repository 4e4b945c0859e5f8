"""The compiled module as mypy sees it; the modules beside this file give it names, types and documentation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

class NetworkFloat32: ...
class NetworkFloat64: ...
class LeafSet: ...

class Tree:
    def __init__(self, branching: int, item_at_leaf: NDArray[np.int32], leaf_of_item: NDArray[np.int32]) -> None: ...

AnyNetwork = NetworkFloat32 | NetworkFloat64
Step = tuple[
    float,
    dict[str, NDArray[Any]],
    NDArray[np.int64],
    NDArray[Any],
    NDArray[np.int64],
    NDArray[Any],
    dict[str, float],
]

def threads() -> int: ...
def set_threads(count: int) -> None: ...
def pack_float32(
    weights: Mapping[str, Any],
    windows: Sequence[int],
    width: int,
    attention: int,
    mlp: Sequence[int],
    layer_norm: bool,
    /,
) -> NetworkFloat32: ...
def pack_float64(
    weights: Mapping[str, Any],
    windows: Sequence[int],
    width: int,
    attention: int,
    mlp: Sequence[int],
    layer_norm: bool,
    /,
) -> NetworkFloat64: ...
def dropout_factors(seed: int, row: int, columns: int, units: int, rate: float, /) -> NDArray[np.float32]: ...
def attention_forward(network: AnyNetwork, vectors: Any, nodes: Any, out: Any, /) -> None: ...
def attention_backward(
    network: AnyNetwork, vectors: Any, nodes: Any, d_weights: Any, /
) -> tuple[NDArray[Any], NDArray[Any], dict[str, NDArray[Any]]]: ...
def score_rows(
    network: AnyNetwork, node_table: Any, history_table: Any, history_rows: Any, node_rows: Any, /
) -> NDArray[Any]: ...
def candidates_step(
    network: AnyNetwork,
    node_table: Any,
    item_table: Any,
    node_rows: Any,
    log_correction: Any,
    history_rows: Any,
    weights: Any,
    dropout: float,
    seed: int,
) -> Step: ...
def batch_step(
    network: NetworkFloat32,
    tree: Tree,
    node_table: Any,
    item_table: Any,
    histories: Any,
    targets: Any,
    weights: Any,
    sampler: str,
    negatives: Any,
    start: str,
    correct_positive: bool,
    with_dropout: bool,
    seed: int,
    dropout: float,
    dropout_seed: int,
) -> Step: ...
def draw(
    network: NetworkFloat32,
    tree: Tree,
    node_table: Any,
    item_table: Any,
    histories: Any,
    targets: Any,
    sampler: str,
    negatives: Any,
    start: str,
    correct_positive: bool,
    with_dropout: bool,
    seed: int,
    dropout: float,
    dropout_seed: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]: ...
def allow(tree: Tree, allowed_items: NDArray[np.bool_], /) -> LeafSet: ...
def search(
    network: NetworkFloat32,
    tree: Tree,
    node_table: Any,
    item_table: Any,
    histories: Any,
    beam_widths: Any,
    k: int,
    widen: bool,
    allowed: LeafSet | None,
    excluded_items: Any,
    excluded_offsets: Any,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]: ...
def adam(
    table: Any,
    first_moment: Any,
    second_moment: Any,
    rows: Any,
    gradients: Any,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    step: int,
    /,
) -> None: ...
def relearn(
    network: NetworkFloat32,
    tree: Tree,
    node_table: Any,
    item_table: Any,
    histories: Any,
    targets: Any,
    groups: Any,
    upper: int,
    lower: int,
    sums: Any,
) -> None: ...
