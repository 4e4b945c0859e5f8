from typing import Any

import numpy as np
import pytest
import torch

from beamtree.model.attention import Attention
from tests.small import (
    assert_same_bytes,
    fresh_attention,
    model_settings,
    random_tree,
    score_of,
    stirred_model,
    weights_of,
)

Normalisation = pytest.mark.parametrize("normalisation", ["none", "layer", "batch"])


def tiny_model(**changes: Any) -> Attention:
    """One number per vector, histories of two in two windows; every weight is set by hand below."""
    settings = model_settings(
        embedding_dim=1, windows=(1, 1), attention_hidden=1, layers=(1, 1, 1), normalisation="none", **changes
    )
    model = fresh_attention(settings, random_tree(2, branching=2, seed=0), seed=0)
    by_hand = {
        "attention.hidden.weight": [[1.0, 2.0, -1.0]],
        "attention.hidden.bias": [0.5],
        "attention.hidden_slope": [0.1],
        "attention.output.weight": [[2.0]],
        "attention.output.bias": [-1.0],
        "attention.output_slope": [0.5],
        "mlp.0.weight": [[1.0, 10.0, 100.0]],
        "mlp.0.bias": [0.0],
        "mlp.1.weight": [[1.0]],
        "mlp.1.bias": [1.0],
        "mlp.2.weight": [[-1.0]],
        "mlp.2.bias": [0.0],
        "mlp.3.weight": [[2.0]],
        "mlp.3.bias": [3.0],
        "mlp.slopes": [0.25, 0.25, 0.5],
    }
    for name, values in by_hand.items():
        model.get_parameter(name).data = torch.tensor(values)
    return model.eval()


def test_a_score_worked_out_by_hand() -> None:
    """Node w = 1 and history (2, -1).

    a = 2:  2 + 2*2 - 1 + .5 = 5.5;           2*5.5 - 1 = 10;                     z_1 = 10 * 2 = 20
    a = -1: -1 - 2 - 1 + .5 = -3.5 -> -.35;   2*-.35 - 1 = -1.7 -> -.85;          z_2 = -.85 * -1 = .85
    20 + 10*.85 + 100 = 128.5; + 1 = 129.5; negated -129.5 -> -64.75; 2*-64.75 + 3 = -126.5
    """
    model = tiny_model()
    history, node = torch.tensor([[[2.0], [-1.0]]]), torch.tensor([[[1.0]]])
    assert model(history, node, present=torch.tensor([[True, True]])).item() == pytest.approx(-126.5)
    # Without the older item: 8.5 + 100 + 1 = 109.5 -> -54.75 -> -106.5.
    assert model(history, node, present=torch.tensor([[False, True]])).item() == pytest.approx(-106.5)
    # An empty history: 100 + 1 = 101 -> -50.5 -> -98.
    assert model(history, node, present=torch.tensor([[False, False]])).item() == pytest.approx(-98.0)


@Normalisation
def test_state_dict_keys_are_those_of_the_file_format(normalisation: str) -> None:
    settings = model_settings(normalisation=normalisation, history_table="separate")
    tree = random_tree(5, branching=2, seed=0)
    shapes = {
        name: tuple(tensor.shape) for name, tensor in fresh_attention(settings, tree, seed=0).state_dict().items()
    }
    expected: dict[str, tuple[int, ...]] = {
        "node_table": (tree.num_nodes, 4),
        "item_table": (5, 4),
        "attention.hidden.weight": (3, 12),
        "attention.hidden.bias": (3,),
        "attention.hidden_slope": (1,),
        "attention.output.weight": (1, 3),
        "attention.output.bias": (1,),
        "attention.output_slope": (1,),
        "mlp.0.weight": (6, 16),
        "mlp.0.bias": (6,),
        "mlp.1.weight": (5, 6),
        "mlp.1.bias": (5,),
        "mlp.2.weight": (3, 5),
        "mlp.2.bias": (3,),
        "mlp.3.weight": (1, 3),
        "mlp.3.bias": (1,),
        "mlp.slopes": (3,),
    }
    if normalisation != "none":
        kinds = ("weight", "bias", "running_mean", "running_var") if normalisation == "batch" else ("weight", "bias")
        expected |= {f"norm.{i}.{kind}": (width,) for i, width in enumerate((6, 5, 3)) for kind in kinds}
    if normalisation == "batch":
        expected |= {f"norm.{i}.num_batches_tracked": () for i in range(3)}
    assert shapes == expected


def test_normalisation_stands_between_the_layer_and_its_activation() -> None:
    """A layer of one number is normalised to 0, so only the biases after it count: the score knows nothing else."""
    settings = model_settings(
        normalisation="layer", embedding_dim=1, windows=(1,), attention_hidden=1, layers=(1, 1, 1)
    )
    model = stirred_model(settings, random_tree(2, branching=2, seed=0), seed=3)
    with torch.no_grad():
        model.get_parameter("norm.2.bias").fill_(-2.0)
    scores = model(torch.tensor([[[5.0]]]), torch.tensor([[[1.0], [-7.0]]]), present=torch.tensor([[True]]))
    last = model.mlp.linear(3)
    expected = (last.weight[0, 0] * -2.0 * model.mlp.slopes[2] + last.bias[0]).item()
    assert scores[0].tolist() == pytest.approx([expected, expected])


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    settings, tree = model_settings(), random_tree(9, branching=3, seed=0)
    first, again, other = (weights_of(fresh_attention(settings, tree, seed=seed)) for seed in (5, 5, 6))
    assert_same_bytes(first, again)
    assert (first["node_table"] != other["node_table"]).all()
    assert (first["mlp.0.weight"] != other["mlp.0.weight"]).all()


def test_making_a_model_leaves_the_global_generator_alone() -> None:
    state = torch.random.get_rng_state()
    try:
        torch.manual_seed(1)
        first = weights_of(fresh_attention(model_settings(), random_tree(4, branching=2, seed=0), seed=5))
        torch.manual_seed(2)
        again = weights_of(fresh_attention(model_settings(), random_tree(4, branching=2, seed=0), seed=5))
    finally:
        torch.random.set_rng_state(state)
    assert_same_bytes(first, again)


def test_first_weights_have_the_spread_of_their_fan_in() -> None:
    settings = model_settings(embedding_dim=40, layers=(200, 150, 100))
    weights = weights_of(fresh_attention(settings, random_tree(500, branching=2, seed=0), seed=0))
    assert weights["mlp.0.weight"].std() == pytest.approx(160**-0.5, rel=0.05)
    assert weights["mlp.1.weight"].std() == pytest.approx(200**-0.5, rel=0.05)
    assert weights["node_table"].std() == pytest.approx(0.3, rel=0.05)
    assert not weights["mlp.0.bias"].any()
    assert weights["mlp.slopes"].tolist() == [0.25] * 3


@Normalisation
def test_absent_candidates_score_minus_infinity_and_change_nothing_else(normalisation: str) -> None:
    tree = random_tree(8, branching=2, seed=0)
    model = stirred_model(model_settings(normalisation=normalisation), tree, seed=1)
    model.train()  # batch statistics must not count the absent either
    generator = torch.Generator().manual_seed(0)
    history, nodes = torch.randn(3, 5, 4, generator=generator), torch.randn(3, 4, 4, generator=generator)
    present = torch.ones(3, 5, dtype=torch.bool)
    candidates = torch.tensor([[True, False, True, True], [True, True, False, False], [True, True, True, True]])
    scores = model(history, nodes, present=present, candidates=candidates)
    assert (scores[~candidates] == -torch.inf).all()
    assert scores[candidates].isfinite().all()
    disturbed = torch.where(candidates.unsqueeze(-1), nodes, torch.full_like(nodes, 1e6))
    assert torch.equal(model(history, disturbed, present=present, candidates=candidates), scores)


def test_dropout_follows_its_generator_and_is_off_without_one() -> None:
    tree = random_tree(8, branching=2, seed=0)
    model = stirred_model(model_settings(dropout=0.5, layers=(64, 5, 3)), tree, seed=1)
    generator = torch.Generator().manual_seed(0)
    history, nodes = torch.randn(2, 5, 4, generator=generator), torch.randn(2, 3, 4, generator=generator)
    present = torch.ones(2, 5, dtype=torch.bool)

    def scores(seed: int | None) -> Any:
        dropout = None if seed is None else torch.Generator().manual_seed(seed)
        return model(history, nodes, present=present, dropout_generator=dropout).detach().numpy()

    np.testing.assert_array_equal(scores(7), scores(7))
    assert (scores(7) != scores(8)).all()
    assert (scores(7) != scores(None)).all()


def test_dropout_keeps_the_expected_value() -> None:
    """With slopes of 1 and no normalisation the network is linear, so the mean over masks is the score without one."""
    tree = random_tree(4, branching=2, seed=0)
    model = stirred_model(model_settings(dropout=0.4, normalisation="none"), tree, seed=1)
    with torch.no_grad():
        model.mlp.slopes.fill_(1.0)
    history, nodes = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(0)), torch.ones(1, 20_000, 4)
    present = torch.ones(1, 5, dtype=torch.bool)
    with torch.no_grad():
        without = model(history, nodes[:, :1], present=present).item()
        dropped = model(history, nodes, present=present, dropout_generator=torch.Generator().manual_seed(3))[0]
    standard_error = dropped.std().item() / 20_000**0.5
    assert abs(dropped.mean().item() - without) < 4 * standard_error
    assert dropped.std().item() > 0.01 * abs(without)


def test_the_tables_are_read_by_rows_and_all_else_is_small() -> None:
    tree = random_tree(5, branching=2, seed=0)
    separate = score_of(fresh_attention(model_settings(history_table="separate"), tree, seed=0))
    assert list(separate.tables()) == ["attention/node_table", "attention/item_table"]
    assert separate.node_tables() == ["attention/node_table"]
    assert separate.tables().keys() | separate.small_weights().keys() == separate.arrays().keys()
    assert list(score_of(fresh_attention(model_settings(), tree, seed=0)).tables()) == ["attention/node_table"]
