"""Parts of one's own in a fit: what is refused before anything is learned."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from beamtree.config import Config
from beamtree.data.requests import Requests
from beamtree.errors import InputError
from beamtree.model.part import Part, PreparedPart, ReadRows
from beamtree.recommender import DeepTreeRetriever
from beamtree.training.events import Event, StepDone
from beamtree.tree.item_tree import ItemTree
from tests.small import small_config, two_group_log


class Parity(Part):
    """Likes every other node, and has nothing to learn or to keep."""

    def prepare(self, requests: Requests, *, read: ReadRows, dropout: torch.Generator | None) -> PreparedPart:
        del requests, read, dropout

        def scores(_levels: Sequence[int], nodes: Tensor) -> Tensor:
            return (nodes % 2).float()

        return scores


def make_parity(tree: ItemTree, config: Config, **known: Any) -> Parity:  # noqa: ARG001
    return Parity()


@pytest.mark.parametrize(
    ("name", "message"),
    [("memory", "cannot be called 'memory'"), ("attention", "cannot be called"), ("parity", "or a buffer")],
)
def test_what_a_saved_model_could_not_tell_is_refused_before_anything_is_learned(name: str, message: str) -> None:
    events: list[Event] = []
    with pytest.raises(InputError, match=message):
        DeepTreeRetriever(small_config(), parts={name: make_parity}).fit(two_group_log(), listen=events.append)
    assert not any(isinstance(event, StepDone) for event in events)


def test_an_estimator_is_not_trained_for_a_score_that_learns_nothing() -> None:
    events: list[Event] = []
    config = small_config(model={"parts": ["memory"]}, training={"method": "dtr-t-rl"})
    model = DeepTreeRetriever(config).fit(two_group_log(), listen=events.append)
    assert not any(isinstance(event, StepDone) for event in events)
    assert all(name.startswith("memory/") for name in model.recommender.artefact.weights)
