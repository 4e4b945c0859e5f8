"""The lists that the model and its baselines give to the same held-out users, for accuracy and exposure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from beamtree.artefact import Artefact
from beamtree.baselines.protocol import Budget
from beamtree.baselines.registry import choose_baselines
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Requests
from beamtree.data.split import HeldOut, Split
from beamtree.errors import BaselineUnavailable
from beamtree.evaluation.answers import Answers, BeamSearch
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.metrics import Labels
from beamtree.evaluation.protocol import held_out_requests
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.types import Int32Array

CUTOFF = 20
MODEL = "this model"


@dataclass(frozen=True, eq=False)
class RankedLists:
    """Recommendations for users with a label that can be recommended.

    lists: (users, CUTOFF) by system, the model first, best item first, -1 where there was nothing to recommend.
    left_out: why a baseline is missing.
    """

    users: HeldOut
    labels: Labels
    requests: Requests
    engine: Engine
    lists: Mapping[str, Int32Array]
    left_out: Mapping[str, str]


def rank_for_users(
    artefact: Artefact,
    dataset: Dataset,
    split: Split,
    users: HeldOut,
    *,
    advance: Callable[[int], None] = lambda _: None,
) -> RankedLists:
    """The lists of the model and of the simple baselines under the model's protocol; `advance`: called per system."""
    config = artefact.config
    reachable = reachable_labels(users, dataset.sequences, config=config)
    requests = held_out_requests(dataset, reachable.users, exclude_seen=reachable.excludes_seen)
    engine = Engine(build_scorer(artefact.weights, artefact.tree, config=config), artefact.tree)
    lists = {MODEL: _ask(BeamSearch(engine, config.retrieval.beam_width), requests)}
    advance(1)
    left_out: dict[str, str] = {}
    budget = Budget(config)
    for name, entry in choose_baselines("simple", dataset, config=config).items():
        try:
            lists[name] = _ask(entry.fit(dataset, split, budget=budget), requests)
        except BaselineUnavailable as reason:
            left_out[name] = str(reason)
        advance(1)
    return RankedLists(reachable.users, reachable.labels, requests, engine, lists, left_out)


def num_systems(dataset: Dataset, artefact: Artefact) -> int:
    """The number of systems of `rank_for_users`."""
    return 1 + len(choose_baselines("simple", dataset, config=artefact.config))


def _ask(system: Answers, requests: Requests) -> Int32Array:
    return system.search(requests, k=CUTOFF).items
