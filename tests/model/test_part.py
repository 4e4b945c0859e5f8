"""What a part is told when it contradicts itself, before or at the first step of learning."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from beamtree.data.requests import Requests
from beamtree.errors import InputError
from beamtree.fitting.computation import build_learner
from beamtree.model.part import Part, PreparedPart, ReadRows
from beamtree.model.score import Score, build_score
from beamtree.model.torch_scorer import TorchScorer
from tests.model.test_new_part import CONFIG, INSTANCES, REQUESTS, TREE
from tests.training.runs import take_step

Answer = Callable[["Bias", ReadRows, torch.Tensor], torch.Tensor]


class Bias(Part):
    """A number for each node. names: tables and node tables as it claims to have them; answer: what it scores."""

    def __init__(self, answer: Answer, shape: tuple[int, ...] = (TREE.num_nodes, 1), **names: set[str]) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(shape))
        self.answer = answer
        self.__dict__ |= {"tables": frozenset({"bias"}), "node_tables": frozenset({"bias"})} | names

    def prepare(self, requests: Requests, *, read: ReadRows, dropout: torch.Generator | None) -> PreparedPart:
        del requests, dropout
        return lambda _levels, nodes: self.answer(self, read, nodes)


def through_read(_bias: Bias, read: ReadRows, nodes: torch.Tensor) -> torch.Tensor:
    return read("bias", nodes).squeeze(-1)


def score_with(part: Part, *, name: str = "bias") -> Score:
    return build_score(CONFIG, TREE, seed=0, parts={name: lambda *_: part})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tables": {"bais"}, "node_tables": set()}, "names the table 'bais', but its parameters are bias"),
        ({"tables": set()}, "'bias' in node_tables alone. Name it in tables too"),
        ({"shape": (TREE.num_nodes,)}, rf"as \(rows, size\), got \({TREE.num_nodes},\)"),
        ({"shape": (12, 1)}, f"each of {TREE.num_nodes} nodes in the table 'bias' of the part bias, got 12"),
    ],
)
def test_what_it_says_of_its_tables_is_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        score_with(Bias(through_read, **changes))


def test_one_that_a_saved_model_would_not_show_is_refused() -> None:
    part = Bias(through_read, tables=set(), node_tables=set())
    del part.bias
    with pytest.raises(InputError, match="has no numbers that are saved"):
        score_with(part)


def test_a_table_read_past_the_reader_is_refused_instead_of_never_learned() -> None:
    score = score_with(Bias(lambda bias, _, nodes: bias.bias[nodes.clamp(min=0)].squeeze(-1)))
    with pytest.raises(InputError, match=r"rows of bias/bias through read\('name', rows\)"):
        take_step(build_learner(score, config=CONFIG), INSTANCES.batch(np.array([0])), step=0, learning_rate=0.1)


def test_scores_of_another_shape_are_refused() -> None:
    score = score_with(Bias(lambda _, read, nodes: read("bias", nodes)))
    with pytest.raises(InputError, match=r"Expected scores \(1, 1, 2\) from the part bias, .* got \(1, 1, 2, 1\)"):
        TorchScorer(score).prepare(REQUESTS).scores(0, 1, np.array([0, 1]))


@pytest.mark.parametrize("name", ["items", "keys", "a.b"])
def test_a_name_may_be_any_that_has_no_slash(name: str) -> None:
    assert list(score_with(Bias(through_read), name=name).arrays()) == [f"{name}/bias"]
