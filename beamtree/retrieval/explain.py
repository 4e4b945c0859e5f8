"""Explanations: the contribution of each part of the score to an item, and the path of the beam to its leaf."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from beamtree.artefact import Artefact
from beamtree.data.columns import TITLE
from beamtree.data.raw_ids import RawIds
from beamtree.data.requests import Histories, Requests
from beamtree.data.vocabulary import Id
from beamtree.model.memory import Memory, Reason
from beamtree.retrieval.beam import ScoreNodes, beam_search, widened
from beamtree.retrieval.engine import Engine, scores_of
from beamtree.retrieval.request import Explanation, HistoryEvidence
from beamtree.retrieval.scorers import ReplaceableMemory, arrays_by_part, build_scorer
from beamtree.scorer import Scorer
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array, Int32Array, Int64Array

if TYPE_CHECKING:
    from beamtree.model.part import MakePartOnTree

MAX_REASONS = 5
MAX_DROPPED = 1000

MAX_LEFT_OUT = 20
"""Number of latest items of a history that are left out, one at a time, to attribute the tower's score."""

TOWER = "tower"
MEMORY = "memory"


@dataclass(frozen=True, eq=False)
class LeftOut:
    """The drop of the score of leaves when an item is removed from the history.

    items: (m,), distinct items of a history, the latest first; losses: (m, n), of each of n leaves.
    """

    items: Int32Array
    losses: Float32Array


def leave_one_out(scorer: Scorer, history: Int32Array, *, level: int, nodes: Int64Array) -> LeftOut:
    """Remove each of the latest items from a history (positions,), all its occurrences, and score again."""
    items = list(dict.fromkeys(history[::-1][:MAX_LEFT_OUT].tolist()))
    histories = [history, *(history[history != item] for item in items)]
    prepared = scorer.prepare(Requests(Histories.of_lists(histories)))
    whole, *shortened = (prepared.scores(row, level, nodes) for row in range(len(histories)))
    losses = [whole - scores for scores in shortened]
    return LeftOut(np.array(items, dtype=np.int32), np.array(losses, dtype=np.float32).reshape(len(items), len(nodes)))


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
        counted = {name: np.asarray(array) for name, array in artefact.part(MEMORY).items()}  # memmaps index slowly
        self.memory = Memory.from_arrays(counted) if counted else None
        self._ids = ids
        self._titles = artefact.item_table[TITLE] if TITLE in artefact.item_table.columns else None

    def remember(self, memory: Memory) -> None:
        """Explain with another counted memory."""
        scorer = self.scorers[MEMORY]
        if isinstance(scorer, ReplaceableMemory):
            self.memory, self.scorers = memory, {**self.scorers, MEMORY: scorer.with_memory(memory)}

    def prepare(self, requests: Requests) -> "Explanations":
        """Prepare explanations of any items for these requests."""
        return Explanations(self, requests)

    def reasons(self, history: Int32Array, items: Int32Array) -> list[tuple[HistoryEvidence, ...]]:
        """For each of some items (n,) the items of a history (positions,) that contribute most, the strongest first.

        For memory by its counts, for the tower by the drop of its score without the item.
        """
        found = [self._memory_reasons(history, item) for item in items.tolist()]
        if TOWER in self.scorers:
            leaves = self.tree.leaf_of_item[items].astype(np.int64)
            left_out = leave_one_out(self.scorers[TOWER], history, level=self.tree.height, nodes=leaves)
            for place, reasons in enumerate(found):
                losses = zip(left_out.items.tolist(), left_out.losses[:, place].tolist(), strict=True)
                reasons += [(TOWER, Reason(source, loss)) for source, loss in losses if loss > 0.0]
        return [self._evidence(reasons) for reasons in found]

    def _memory_reasons(self, history: Int32Array, item: int) -> list[tuple[str, Reason]]:
        if self.memory is None:
            return []
        gate = self.memory.gates[-1] if self.memory.gates else 1.0
        reasons = self.memory.reasons(history, item)[:MAX_REASONS]
        return [(MEMORY, Reason(reason.item, gate * reason.strength)) for reason in reasons]

    def _evidence(self, reasons: list[tuple[str, Reason]]) -> tuple[HistoryEvidence, ...]:
        """The strongest contributions of all parts; an item with several is listed once, with the strongest."""
        strongest: dict[int, tuple[str, Reason]] = {}
        for part, reason in sorted(reasons, key=lambda given: -given[1].strength):
            strongest.setdefault(reason.item, (part, reason))
        kept = list(strongest.values())[:MAX_REASONS]
        raw = self.raw(np.array([reason.item for _, reason in kept], dtype=np.int32))
        return tuple(
            HistoryEvidence(item_id, self._title(reason.item), reason.strength, part)
            for item_id, (part, reason) in zip(raw, kept, strict=True)
        )

    def raw(self, items: Int32Array) -> list[Id]:
        """Raw ids of dense items."""
        return self._ids.decode(items)

    def _title(self, item: int) -> str | None:
        title = None if self._titles is None else self._titles[item]
        return None if title is None else str(title)


class Explanations:
    """Explanations of items for prepared requests."""

    def __init__(self, explainer: Explainer, requests: Requests) -> None:
        self._explainer = explainer
        self._requests = requests
        self._prepared = {part: scorer.prepare(requests) for part, scorer in explainer.scorers.items()}

    def of(self, request: int, items: Int32Array) -> tuple[Explanation, ...]:
        """Explanations of the scores of dense items (n,), for one of the requests."""
        explainer = self._explainer
        leaves = explainer.tree.leaf_of_item[items].astype(np.int64)
        shares = {
            part: prepared.scores(request, explainer.tree.height, leaves).tolist()
            for part, prepared in self._prepared.items()
        }
        reasons = explainer.reasons(self._requests.histories.row(request), items)
        return tuple(
            Explanation(
                item_id,
                score=sum(given[place] for given in shares.values()),
                parts={part: given[place] for part, given in shares.items()},
                because_of=reasons[place],
            )
            for place, item_id in enumerate(explainer.raw(items))
        )


@dataclass(frozen=True)
class BeamLevel:
    """A level of the search. nodes: those kept, best first; dropped: the best of the others, at most 1,000.

    size: nodes of the level; scored: number of nodes scored; cutoff: score of the last node kept.
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
    """A node on the path to an item.

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
    """Trace of a search. width: after widening; exact: all eligible items were scored."""

    width: int
    exact: bool
    levels: list[BeamLevel]


@dataclass(frozen=True)
class SearchTrace:
    """The levels of a search, and the path of each item, from level 1 to its leaf."""

    beam: BeamTrace
    paths: list[list[PathStep]]


@dataclass(frozen=True)
class SeenLevel:
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
    """Repeat the search of one request with the reference search, and return its levels and the paths to items."""
    tree = engine.tree
    eligibility = Eligibility.of(request, tree)
    width = int(widened(max(beam_width, k), eligibility.num_excluded(0)))
    score_nodes = scores_of(engine.scorer.prepare(request), 0)
    seen = watch_search(tree, score_nodes, eligibility=eligibility, request=0, beam_width=width, k=k)
    beam = BeamTrace(width, exact=seen[0].level == tree.height, levels=[_level(tree, level) for level in seen])
    leaves = tree.leaf_of_item[items].astype(np.int64)
    return SearchTrace(beam, _paths(tree, score_nodes, leaves=leaves, seen=seen))


def watch_search(
    tree: ItemTree, score_nodes: ScoreNodes, *, eligibility: Eligibility, request: int, beam_width: int, k: int
) -> list[SeenLevel]:
    """The nodes scored by the reference search on each level, from the top down; the leaves alone in a scan."""
    seen: list[SeenLevel] = []

    def record(level: int, nodes: Int64Array) -> Float32Array:
        scores = score_nodes(level, nodes)
        order = np.argsort(-scores, kind="stable")
        kept = min(len(nodes), k if level == tree.height else beam_width)
        seen.append(SeenLevel(level, nodes[order], scores[order], kept))
        return scores

    beam_search(tree, record, eligibility=eligibility, request=request, beam_width=beam_width, k=k)
    return seen


def _level(tree: ItemTree, seen: SeenLevel) -> BeamLevel:
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
    tree: ItemTree, score_nodes: ScoreNodes, *, leaves: Int64Array, seen: Sequence[SeenLevel]
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
