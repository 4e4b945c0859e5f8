"""From requests in raw ids to recommendations in raw ids, for Python, command line and server alike.

The only place for: id lookup, unknown ids, stored histories, exclusion, batching of requests, and popular items for
requests without known items and features.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from beamtree.artefact import FEATURE_READERS, Artefact, faults_of, load_artefact
from beamtree.data.features import Features
from beamtree.data.raw_ids import Ids, RawIds, id_list
from beamtree.data.request_features import Values
from beamtree.data.requests import Histories, Requests
from beamtree.data.vocabulary import Id
from beamtree.errors import ColdStartError, InputError, UnknownIdsError
from beamtree.model.memory import Memory
from beamtree.native.offset_arrays import CONTEXT, USER
from beamtree.retrieval.allowed import CACHE_BYTES, Allowed, AllowedItems, known_items
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.explain import Explainer, SearchTrace, trace_search
from beamtree.retrieval.histories import HistoryStore, stored_history
from beamtree.retrieval.request import Explanation, Recommendations, RecommendOptions, RecommendRequest
from beamtree.retrieval.scorers import ReplaceableMemory, arrays_by_part, bind_items, build_scorer
from beamtree.types import AnyArray, Int32Array

if TYPE_CHECKING:
    from beamtree.model.part import MakePart

NO_ITEMS = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class EncodedRequest:
    """A request in dense ids: known items of the history, oldest first, excluded items, allowed items.

    has_features: whether it has features of the user or the context that the score reads.
    """

    request: RecommendRequest
    history: Int32Array
    excluded: Int32Array
    allowed: Allowed
    unknown_ids: list[Id]
    user_known: bool | None
    has_features: bool = False

    @property
    def is_cold_start(self) -> bool:
        """Whether there is nothing to score with: no known item of the history, and no feature."""
        return not len(self.history) and not self.has_features


class Recommender:
    """A loaded model that answers requests.

    parts: what makes those parts of its score that beamtree does not know. turn: held while the engine searches, where
    searches must take turns. filter_cache_bytes: what the masks of conditions on items may take.
    """

    def __init__(
        self,
        artefact: Artefact,
        *,
        parts: "Mapping[str, MakePart] | None" = None,
        turn: AbstractContextManager[object] | None = None,
        filter_cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.artefact = artefact
        self._made_by = dict(parts or {})
        self._parts = bind_items(parts, artefact.item_table)
        self.engine = Engine(
            build_scorer(artefact.weights, artefact.tree, config=artefact.config, parts=self._parts), artefact.tree
        )
        self._remembered: Memory | None = None
        self.ids = RawIds(artefact.items)
        self._turn = nullcontext() if turn is None else turn
        self._allowed_items = AllowedItems(artefact.item_table, ids=self.ids, cache_bytes=filter_cache_bytes)

    @classmethod
    def load(cls, directory: str | Path, *, parts: "Mapping[str, MakePart] | None" = None) -> "Recommender":
        """Read a saved model; ArtefactError when it is missing, damaged, of another version or cannot be searched.

        Errors of the given parts are not the folder's, and are raised as they are.
        """
        folder = Path(directory)
        with nullcontext() if parts else faults_of(folder):
            return cls(load_artefact(folder), parts=parts)

    def __reduce__(self) -> "tuple[object, tuple[Artefact, dict[str, MakePart]]]":
        """Pickled as what it was made from; the engine is built again where it is loaded."""
        return _rebuilt, (self.artefact, self._made_by)

    @property
    def summary(self) -> str:
        """Its items, the parts of its score and its beam, in a few words."""
        artefact, parts = self.artefact, " + ".join(sorted(arrays_by_part(self.artefact.weights)))
        return f"{artefact.tree.num_present:,} items, score {parts}, beam {artefact.config.retrieval.beam_width}"

    def __repr__(self) -> str:
        return f"Recommender({self.summary})"

    @property
    def filter_cache_bytes(self) -> int:
        """What the masks of conditions take that are kept for the next request."""
        return self._allowed_items.cached_bytes

    @cached_property
    def most_popular(self) -> Int32Array:
        """Items that may be returned (present items,) by falling popularity, equal ones by rising dense id.

        By recent popularity if the score has a trend.
        """
        demand: AnyArray = self.artefact.popularity
        if self.artefact.weights.get("memory/weights.trend", 0.0) > 0.0:
            memory = self._remembered or Memory.from_arrays(self.artefact.part("memory"))
            demand = memory.trend.demand
        popular = np.argsort(-demand, kind="stable").astype(np.int32)
        removed = self.artefact.tree.removed
        return popular[~np.isin(popular, removed)] if removed.size else popular

    def remember(self, memory: Memory) -> None:
        """Replace the memory, from the next request on.

        InputError where the score is not searched by the kernels.
        """
        scorer = self.engine.scorer
        if not isinstance(scorer, ReplaceableMemory):
            raise InputError("Only a score that the kernels search can be given another memory: fit the model again.")
        self.engine = Engine(scorer.with_memory(memory), self.artefact.tree)
        self._remembered = memory
        self.__dict__.pop("most_popular", None)
        if "explainer" in self.__dict__:
            self.explainer.remember(memory)

    def recommend(
        self, requests: Iterable[RecommendRequest], *, histories: HistoryStore | None = None
    ) -> list[Recommendations]:
        """Answers in the order of the requests. histories: stored histories, for requests by user.

        IdTypeError for ids of the other kind, UnknownIdsError and ColdStartError where the options make them errors.
        """
        return self.answer(self.encode(requests, histories=histories))

    def encode(
        self, requests: Iterable[RecommendRequest], *, histories: HistoryStore | None = None
    ) -> list[EncodedRequest]:
        """Look up all ids and conditions of requests, and refuse what their options refuse."""
        allowed: dict[int, Allowed] = {}  # by options, which live as long as what is encoded
        encoded = []
        for request in requests:
            options = request.options
            if id(options) not in allowed:
                allowed[id(options)] = self._allowed_items.resolve(options)
            encoded.append(self._encode(request, allowed=allowed[id(options)], histories=histories))
        _refuse_cold_starts(encoded)
        self._features(encoded)
        return encoded

    def answer(self, encoded: Sequence[EncodedRequest]) -> list[Recommendations]:
        """Answers in the order of the requests; those that agree in k, beam and allowed items are searched at once."""
        answers: list[Recommendations | None] = [None] * len(encoded)
        together: dict[Hashable, list[int]] = defaultdict(list)
        for index, one in enumerate(encoded):
            if one.is_cold_start:
                answers[index] = self._popular(one)
            else:
                options = one.request.options
                together[options.k, options.beam, one.allowed.key].append(index)
        for group in together.values():
            for index, answer in zip(group, self._searched([encoded[index] for index in group]), strict=True):
                answers[index] = answer
        return [answer for answer in answers if answer is not None]

    def explain(
        self, history: Ids, items: Ids, *, user_features: Values | None = None, context: Values | None = None
    ) -> list[Explanation]:
        """Where the scores of items come from for one history, whether they would be recommended or not.

        user_features, context: as in `RecommendRequest`.

        UnknownIdsError for items that the model has never seen or that were removed; ids of the history that it does
        not know are skipped.
        """
        unknown: list[Id] = []
        dense = known_items(self.ids, items, what="items", unknown=unknown)
        if unknown:
            raise UnknownIdsError(f"The model does not know the item {unknown[0]!r}: there is no score.", unknown)
        removed = self.ids.decode(dense[np.isin(dense, self.artefact.tree.removed)])
        if removed:
            raise UnknownIdsError(
                f"The item {removed[0]!r} was removed from the catalogue: there is no score.", removed
            )
        known = known_items(self.ids, history, what="history", unknown=[])
        read = self.artefact.request_features
        request = Requests(
            Histories.of_lists([known]),
            user_features=read.of_users([user_features or {}]),
            context=read.of_contexts([context or {}]),
        )
        return list(self.explainer.prepare(request).of(0, dense))

    def trace(self, encoded: EncodedRequest, answer: Recommendations) -> SearchTrace:
        """The trace of the search for a request, and the paths of its items."""
        options = encoded.request.options
        items = self.ids.encode(answer.items)
        return trace_search(
            self.engine, self.batch([encoded]), items=items, k=self._k(options), beam_width=self._beam(options)
        )

    @cached_property
    def explainer(self) -> Explainer:
        """Explains scores by their parts."""
        explainer = Explainer(self.artefact, ids=self.ids, parts=self._parts)
        if self._remembered is not None:
            explainer.remember(self._remembered)
        return explainer

    def _encode(self, request: RecommendRequest, *, allowed: Allowed, histories: HistoryStore | None) -> EncodedRequest:
        options = request.options
        unknown: list[Id] = []
        user_known: bool | None = None
        if request.history is not None:
            history = known_items(self.ids, request.history, what="history", unknown=unknown)
        else:
            stored = stored_history(request, histories)
            user_known = stored is not None
            history = NO_ITEMS if stored is None else self.ids.encode_respelled(id_list(stored, what="history"))
        excluded = NO_ITEMS
        if request.exclude is not None:
            excluded = known_items(self.ids, request.exclude, what="exclude", unknown=unknown)
        unknown += allowed.unknown
        if unknown and options.unknown == "refuse":
            raise UnknownIdsError(
                f"{len(unknown)} ids are unknown to the model, the first is {unknown[0]!r}. Leave them out, or "
                "give unknown='report' or 'ignore'.",
                unknown,
            )
        if self.artefact.config.retrieval.excludes_seen if options.exclude_seen is None else options.exclude_seen:
            excluded = np.concatenate([excluded, history]) if len(excluded) else history
        return EncodedRequest(request, history, excluded, allowed, unknown, user_known, self._has_features(request))

    def _searched(self, group: Sequence[EncodedRequest]) -> list[Recommendations]:
        """Answers for requests that agree in k, beam and allowed items."""
        options = group[0].request.options
        requests = self.batch(group)
        with self._turn:
            found = self.engine.search(requests, k=self._k(options), beam_width=self._beam(options))
        counts = (found.items >= 0).sum(axis=1).tolist()
        explains = any(one.request.options.explain for one in group)
        explained = self.explainer.prepare(requests) if explains else None
        answers = []
        for row, (one, count) in enumerate(zip(group, counts, strict=True)):
            items, scores = found.items[row, :count], found.scores[row, :count]
            answers.append(
                Recommendations(
                    self.ids.decode(items),
                    scores.tolist(),
                    source="beam",
                    history_used=len(one.history),
                    unknown_ids=one.unknown_ids,
                    user_known=one.user_known,
                    explanations=explained.of(row, items) if explained and one.request.options.explain else None,
                )
            )
        return answers

    def batch(self, group: Sequence[EncodedRequest]) -> Requests:
        """Requests that agree in what is allowed, as the engine takes them."""
        times = [one.request.time for one in group]
        user_features, context = self._features(group)
        return Requests(
            Histories.of_lists([one.history for one in group]),
            excluded=Histories.of_lists([one.excluded for one in group]).flattened(),
            allowed=group[0].allowed.mask,
            times=None if times.count(None) == len(times) else np.array(times, dtype=np.float64),
            user_features=user_features,
            context=context,
        )

    def _features(self, group: Sequence[EncodedRequest]) -> tuple[Features | None, Features | None]:
        """What the model reads of users and contexts; FeatureError for unknown columns and values of another type."""
        read = self.artefact.request_features
        users, contexts = [one.request.user_features for one in group], [one.request.context for one in group]
        return (
            read.of_users(users) if read.user or any(users) else None,
            read.of_contexts(contexts) if read.context or any(contexts) else None,
        )

    def _has_features(self, request: RecommendRequest) -> bool:
        given = {USER: request.user_features, CONTEXT: request.context}
        return any(
            f"{part}/{prefix}.embedding" in self.artefact.weights
            and any(value is not None for value in values.values())
            for part in FEATURE_READERS
            for prefix, values in given.items()
        )

    def _popular(self, one: EncodedRequest) -> Recommendations:
        """The most popular items that a request may get."""
        k, popular = one.request.options.k, self.most_popular
        if one.allowed.mask is not None:
            popular = popular[one.allowed.mask[popular]]
        if len(one.excluded):
            popular = popular[: k + len(one.excluded)]
            popular = popular[~np.isin(popular, one.excluded)]
        items = self.ids.decode(popular[:k])
        return Recommendations(
            items,
            [None] * len(items),
            source="popularity",
            history_used=0,
            unknown_ids=one.unknown_ids,
            user_known=one.user_known,
        )

    def _k(self, options: RecommendOptions) -> int:
        return min(options.k, self.artefact.tree.num_present)

    def _beam(self, options: RecommendOptions) -> int:
        return max(options.beam or self.artefact.config.retrieval.beam_width, options.k)


def _rebuilt(artefact: Artefact, parts: "dict[str, MakePart]") -> Recommender:
    return Recommender(artefact, parts=parts)


def _refuse_cold_starts(encoded: Sequence[EncodedRequest]) -> None:
    """ColdStartError for a request without known items that does not fall back to popular ones."""
    cold = [one for one in encoded if one.is_cold_start and one.request.options.fallback == "error"]
    if cold:
        raise ColdStartError(
            f"{len(cold)} of {len(encoded)} histories hold no item that the model knows. "
            "Give known items, or ask for popular items instead (fallback='popularity')."
        )
