"""Why an item is recommended: what each part of the score gave it, and how the beam came to its leaf."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from beamtree.artefact import Artefact
from beamtree.data.columns import TITLE
from beamtree.data.raw_ids import RawIds
from beamtree.data.requests import Requests
from beamtree.data.vocabulary import Id
from beamtree.model.memory import Memory
from beamtree.retrieval.beam import ScoreNodes, beam_search, widened
from beamtree.retrieval.engine import Engine, scores_of
from beamtree.retrieval.request import Explanation, HistoryEvidence
from beamtree.retrieval.scorers import arrays_by_part, build_scorer
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array, Int32Array, Int64Array

if TYPE_CHECKING:
    from beamtree.model.part import MakePartOnTree

MAX_REASONS = 5
MAX_DROPPED = 1000


class Explainer:
    """The parts of a model's score, one by one, and its counted memory."""

    def __init__(self, artefact: Artefact, *, ids: RawIds, parts: "Mapping[str, MakePartOnTree] | None" = None) -> None:
        """parts: what makes those parts that beamtree does not know."""
        self.tree = artefact.tree
        self.scorers = {
            part: build_scorer(
                {name: array for name, array in artefact.weights.items() if name.startswith(f"{part}/")},
                artefact.tree,
                config=artefact.config,
                parts={name: make for name, make in (parts or {}).items() if name == part},
            )
            for part in sorted(arrays_by_part(artefact.weights).keys() | (parts or {}).keys())
        }
        counted = {name: np.asarray(array) for name, array in artefact.part("memory").items()}  # memmaps index slowly
        self.memory = Memory.from_arrays(counted) if counted else None
        self._ids = ids
        self._titles = artefact.item_table[TITLE] if TITLE in artefact.item_table.columns else None

    def prepare(self, requests: Requests) -> "Explanations":
        """Ready to explain any item to these requests."""
        return Explanations(self, requests)

    def evidence(self, history: Int32Array, item: int) -> tuple[HistoryEvidence, ...]:
        """The items of a history (positions,) that memory connects with an item, the strongest first."""
        if self.memory is None:
            return ()
        gate = self.memory.gates[-1] if self.memory.gates else 1.0
        reasons = self.memory.reasons(history, item)[:MAX_REASONS]
        raw = self._ids.decode(np.array([reason.item for reason in reasons], dtype=np.int64))
        return tuple(
            HistoryEvidence(item_id, self._title(reason.item), gate * reason.strength)
            for item_id, reason in zip(raw, reasons, strict=True)
        )

    def raw(self, items: Int32Array) -> list[Id]:
        """Raw ids of dense items."""
        return self._ids.decode(items)

    def _title(self, item: int) -> str | None:
        title = None if self._titles is None else self._titles[item]
        return None if title is None else str(title)


class Explanations:
    """Explains items to the requests that it was prepared for."""

    def __init__(self, explainer: Explainer, requests: Requests) -> None:
        self._explainer = explainer
        self._requests = requests
        self._prepared = {part: scorer.prepare(requests) for part, scorer in explainer.scorers.items()}

    def of(self, request: int, items: Int32Array) -> tuple[Explanation, ...]:
        """Where the scores of dense items (n,) come from, for one of the requests."""
        explainer = self._explainer
        leaves = explainer.tree.leaf_of_item[items].astype(np.int64)
        shares = {
            part: prepared.scores(request, explainer.tree.height, leaves).tolist()
            for part, prepared in self._prepared.items()
        }
        history = self._requests.histories.row(request)
        return tuple(
            Explanation(
                item_id,
                score=sum(given[place] for given in shares.values()),
                parts={part: given[place] for part, given in shares.items()},
                because_of=explainer.evidence(history, item),
            )
            for place, (item, item_id) in enumerate(zip(items.tolist(), explainer.raw(items), strict=True))
        )


@dataclass(frozen=True)
class BeamLevel:
    """A level of the search. nodes: those that were kept, best first; dropped: the best of the others, at most 1,000.

    size: nodes of the level; scored: how many were looked at; cutoff: score of the last one that was kept.
    """

    level: int
    size: int
    scored: int
    kept: int
    cutoff: float | None
    nodes: list[int]
    scores: list[float]
    dropped: list[int]
    dropped_scores: list[float]


@dataclass(frozen=True)
class PathStep:
    """A node on the way to an item, and where the beam stood there.

    searched: false above the first level that the beam did not keep whole; rank: among all that were scored, from 1.
    """

    level: int
    node: int
    score: float
    searched: bool
    rank: int | None
    kept: bool
    cutoff: float | None


@dataclass(frozen=True)
class BeamTrace:
    """How a search went. width: after widening; exact: all eligible items were scored."""

    width: int
    exact: bool
    levels: list[BeamLevel]


@dataclass(frozen=True)
class SearchTrace:
    """The levels of a search, and the path of each item, from level 1 to its leaf."""

    beam: BeamTrace
    paths: list[list[PathStep]]


@dataclass(frozen=True)
class _SeenLevel:
    """All nodes that were scored on one level, best first, and how many of them the search kept."""

    level: int
    nodes: Int64Array
    scores: Float32Array
    kept: int

    @property
    def cutoff(self) -> float | None:
        """Score of the last node that was kept."""
        return float(self.scores[self.kept - 1]) if self.kept else None


def trace_search(engine: Engine, request: Requests, *, items: Int32Array, k: int, beam_width: int) -> SearchTrace:
    """Search once more for one request with the reference search, and tell what it saw and how it came to items."""
    tree = engine.tree
    eligibility = Eligibility.of(request, tree)
    width = int(widened(max(beam_width, k), eligibility.num_excluded(0)))
    score_nodes = scores_of(engine.scorer.prepare(request), 0)
    seen: list[_SeenLevel] = []

    def record(level: int, nodes: Int64Array) -> Float32Array:
        scores = score_nodes(level, nodes)
        order = np.argsort(-scores, kind="stable")
        kept = min(len(nodes), k if level == tree.height else width)
        seen.append(_SeenLevel(level, nodes[order], scores[order], kept))
        return scores

    beam_search(tree, record, eligibility=eligibility, request=0, beam_width=width, k=k)
    beam = BeamTrace(width, exact=seen[0].level == tree.height, levels=[_level(tree, level) for level in seen])
    leaves = tree.leaf_of_item[items].astype(np.int64)
    return SearchTrace(beam, _paths(tree, score_nodes, leaves=leaves, seen=seen))


def _level(tree: ItemTree, seen: _SeenLevel) -> BeamLevel:
    dropped = slice(seen.kept, seen.kept + MAX_DROPPED)
    return BeamLevel(
        level=seen.level,
        size=int(tree.level_sizes[seen.level]),
        scored=len(seen.nodes),
        kept=seen.kept,
        cutoff=seen.cutoff,
        nodes=seen.nodes[: seen.kept].tolist(),
        scores=seen.scores[: seen.kept].tolist(),
        dropped=seen.nodes[dropped].tolist(),
        dropped_scores=seen.scores[dropped].tolist(),
    )


def _paths(
    tree: ItemTree, score_nodes: ScoreNodes, *, leaves: Int64Array, seen: Sequence[_SeenLevel]
) -> list[list[PathStep]]:
    """For each leaf its nodes from level 1 down, with scores; ranks on the levels that were searched."""
    by_level = {level.level: level for level in seen}
    paths: list[list[PathStep]] = [[] for _ in leaves]
    for level in range(1, tree.height + 1):
        nodes = tree.ancestors(leaves, level)
        distinct, place = np.unique(nodes, return_inverse=True)
        scores = score_nodes(level, distinct)[place]
        searched = by_level.get(level)
        ranks = {} if searched is None else {node: rank for rank, node in enumerate(searched.nodes.tolist(), start=1)}
        for path, node, score in zip(paths, nodes.tolist(), scores.tolist(), strict=True):
            rank = ranks.get(node)
            path.append(
                PathStep(
                    level,
                    node,
                    score=score if searched is None or rank is None else float(searched.scores[rank - 1]),
                    searched=searched is not None,
                    rank=rank,
                    kept=searched is None or (rank is not None and rank <= searched.kept),
                    cutoff=None if searched is None else searched.cutoff,
                )
            )
    return paths
