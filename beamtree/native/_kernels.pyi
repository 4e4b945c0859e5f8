"""The compiled module as mypy sees it; the modules beside this file give it names, types and documentation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

class NetworkFloat32: ...
class NetworkFloat64: ...
class LeafSet: ...

class AttentionFloat32:
    def __init__(self, network: NetworkFloat32, node_table: Any, item_table: Any) -> None: ...

class AttentionFloat64:
    def __init__(self, network: NetworkFloat64, node_table: Any, item_table: Any) -> None: ...

class Tree:
    def __init__(self, branching: int, item_at_leaf: NDArray[np.int32], leaf_of_item: NDArray[np.int32]) -> None: ...

class Requests:
    def __init__(
        self,
        items: NDArray[np.int32],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        *,
        allowed: LeafSet | None,
        excluded_items: NDArray[np.int32] | None,
        excluded_offsets: NDArray[np.int64] | None,
        tower_offsets: NDArray[np.float32] | None,
        layer_offsets: NDArray[np.float32] | None,
    ) -> None: ...

class Links:
    def __init__(
        self,
        offsets: NDArray[np.int64],
        items: NDArray[np.int32],
        strengths: Any,
        weight: float,
        fade: float,
        depth: int,
        distinct: bool,
    ) -> None: ...

class Memory:
    def __init__(
        self,
        links: Sequence[Links],
        repeat_weight: float,
        repeat_fade: float,
        returns: NDArray[np.float32],
        popularity_weight: float,
        most_popular: NDArray[np.int32],
        popularity: NDArray[np.float32],
        gates: Sequence[float],
    ) -> None: ...

class Encoder: ...

def self_attention_encoder(
    weights: Mapping[str, NDArray[np.float32]], *, width: int, heads: int, layers: int, history_length: int
) -> Encoder: ...
def recurrent_encoder(
    weights: Mapping[str, NDArray[np.float32]], *, width: int, hidden: int, layers: int, history_length: int
) -> Encoder: ...

class Tower:
    def __init__(self, tree: Tree, encoder: Encoder, *, node_table: NDArray[np.float32], weight: float) -> None: ...
    def encode(
        self, *, items: NDArray[np.int32], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> NDArray[np.float32]: ...

class Score:
    def __init__(
        self,
        tree: Tree,
        *,
        attention: AttentionFloat32 | None,
        memory: Memory | None,
        tower: Tower | None,
        attention_from: int,
    ) -> None: ...

class Dropout:
    def __init__(self, rate: float, seed: int) -> None: ...

class Sampling:
    def __init__(
        self,
        *,
        sampler: str,
        negatives: Any,
        start: str,
        correct_positive: bool,
        with_dropout: bool,
        seed: int,
    ) -> None: ...

class AdamSettings:
    def __init__(
        self,
        *,
        learning_rate: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        weight_decay: float,
        decoupled: bool,
        step: int,
    ) -> None: ...

AnyNetwork = NetworkFloat32 | NetworkFloat64
AnyAttention = AttentionFloat32 | AttentionFloat64
Step = tuple[
    float,
    dict[str, NDArray[Any]],
    NDArray[np.int64],
    NDArray[Any],
    NDArray[np.int64],
    NDArray[Any],
    NDArray[Any] | None,
    dict[str, float],
]

def threads() -> int: ...
def set_threads(count: int) -> None: ...
def pack_float32(
    weights: Mapping[str, Any],
    *,
    windows: Sequence[int],
    width: int,
    attention: int,
    mlp: Sequence[int],
    layer_norm: bool,
) -> NetworkFloat32: ...
def pack_float64(
    weights: Mapping[str, Any],
    *,
    windows: Sequence[int],
    width: int,
    attention: int,
    mlp: Sequence[int],
    layer_norm: bool,
) -> NetworkFloat64: ...
def dropout_factors(dropout: Dropout, *, row: int, columns: int, units: int) -> NDArray[np.float32]: ...
def attention_forward(network: AnyNetwork, vectors: Any, nodes: Any, out: Any, /) -> None: ...
def attention_backward(
    network: AnyNetwork, vectors: Any, nodes: Any, d_weights: Any, /
) -> tuple[NDArray[Any], NDArray[Any], dict[str, NDArray[Any]]]: ...
def score_rows(attention: AnyAttention, *, node_rows: Any, history_rows: Any, layer_offset: Any) -> NDArray[Any]: ...
def candidates_step(
    attention: AnyAttention,
    *,
    node_rows: Any,
    log_correction: Any,
    history_rows: Any,
    weights: Any,
    layer_offsets: Any,
    dropout: Dropout,
) -> Step: ...
def batch_step(
    attention: AttentionFloat32,
    tree: Tree,
    *,
    histories: Any,
    targets: Any,
    weights: Any,
    layer_offsets: Any,
    sampling: Sampling,
    dropout: Dropout,
    first_level: int,
) -> Step: ...
def draw(
    attention: AttentionFloat32,
    tree: Tree,
    *,
    histories: Any,
    targets: Any,
    layer_offsets: Any,
    sampling: Sampling,
    dropout: Dropout,
    first_level: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]: ...
def allow(tree: Tree, allowed_items: NDArray[np.bool_], /) -> LeafSet: ...
def search(
    score: Score, requests: Requests, beam_widths: NDArray[np.int64] | None, k: int, widen: bool
) -> tuple[NDArray[np.int32], NDArray[np.float32]]: ...
def score_nodes(
    score: Score, requests: Requests, request: int, level: int, nodes: NDArray[np.int64]
) -> NDArray[np.float32]: ...
def count_company(
    items: NDArray[np.int32],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    norms: NDArray[np.float64],
    most: int,
    weights: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]: ...
def count_followers(
    items: NDArray[np.int32],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    num_items: int,
    window: int,
    most: int,
    weights: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]: ...
def adam(
    table: Any, *, first_moment: Any, second_moment: Any, rows: Any, gradients: Any, settings: AdamSettings
) -> None: ...
def relearn(
    attention: AttentionFloat32,
    tree: Tree,
    sums: Any,
    *,
    histories: Any,
    targets: Any,
    groups: Any,
    layer_offsets: Any,
    upper: int,
    lower: int,
) -> None: ...
