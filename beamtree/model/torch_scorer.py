"""Any score as a scorer: slow and right, the judge of every faster search, and the search of what only torch knows."""

from collections.abc import Mapping

import numpy as np
import torch

from beamtree.config import Config
from beamtree.data.requests import Requests
from beamtree.model.attention import attention_like
from beamtree.model.memory import Memory
from beamtree.model.memory_part import MemoryPart
from beamtree.model.part import MakePartOnTree
from beamtree.model.score import ATTENTION, PreparedScore, Score, build_score
from beamtree.model.tower import TOWER, tower_of_sizes
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray, Float32Array, Int64Array


class TorchScorer:
    """Scores nodes with torch, on the device that the score lives on."""

    def __init__(self, score: Score) -> None:
        self._score = score

    def prepare(self, requests: Requests) -> "TorchScores":
        """Scores for these requests, each prepared by itself when it is first asked for."""
        return TorchScores(self._score, requests)


def build_torch_scorer(
    arrays: Mapping[str, AnyArray], tree: ItemTree, *, config: Config, parts: Mapping[str, MakePartOnTree] | None = None
) -> TorchScorer:
    """The score that stored arrays describe, named by part. parts: makes those summands that beamtree does not know.

    ArtefactError where the arrays do not fit the parts.
    """
    attending, counted, encoded = (_of_part(name, arrays) for name in (ATTENTION, "memory", TOWER))
    learned = {name: array for name, array in arrays.items() if not name.startswith("memory/")}
    makers: dict[str, MakePartOnTree] = {}
    if attending:
        makers[ATTENTION] = attention_like(attending)
    if encoded:
        makers[TOWER] = tower_of_sizes(encoded)
    score = build_score(config, tree, seed=0, parts=makers | dict(parts or {}))
    score.load_arrays(learned)
    if counted:
        score = Score(tree, {**score.parts, "memory": MemoryPart(Memory.from_arrays(counted), tree)})
    return TorchScorer(score)


def _of_part(part: str, arrays: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """The arrays of one part, by their names within it."""
    return {name.removeprefix(f"{part}/"): array for name, array in arrays.items() if name.startswith(f"{part}/")}


class TorchScores:
    """Scores for requests; the latest one is cached.

    Each request is prepared alone, so that its scores do not depend on the rest of the batch.
    """

    def __init__(self, score: Score, requests: Requests) -> None:
        self._score = score
        self._requests = requests
        self._prepared: tuple[int, PreparedScore] | None = None

    @torch.no_grad()
    def scores(self, request: int, level: int, nodes: Int64Array) -> Float32Array:
        """Scores (n,) of nodes (n,) of a level, for one of the requests; higher is better."""
        rows = torch.from_numpy(nodes + self._score.tree.level_offsets[level]).to(self._score.device)
        found = self._of(request)([level], rows[None, None])[0, 0]
        return np.asarray(found.cpu().numpy(), dtype=np.float32)

    def _of(self, request: int) -> PreparedScore:
        if self._prepared is None or self._prepared[0] != request:
            self._score.eval()
            alone = self._requests.take(slice(request, request + 1))
            self._prepared = request, self._score.prepare(alone)
        return self._prepared[1]
