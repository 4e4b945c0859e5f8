"""From checked requests to answers: raw ids in, beam search, raw ids out. No HTTP in here."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.data.requests import Histories, Requests
from beamtree.data.vocabulary import Id
from beamtree.serving import histories as stores
from beamtree.serving.conditions import condition_key
from beamtree.serving.explain import explain_search
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.refusal import Refusal, shortened
from beamtree.serving.schemas import Recommend

Int32Array = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]

Answers = list[dict[str, Any]]

NO_ITEMS = np.empty(0, dtype=np.int32)
SHOWN_IDS = 100


@dataclass(frozen=True, eq=False)
class Query:
    """A request in dense ids.

    history: known items, oldest first; excluded: items that must not come back; allowed: (items,) or None for all,
    and a key that is equal for equal allowed items. unknown: the raw ids that the model has never seen.
    """

    request: Recommend
    history: Int32Array
    excluded: Int32Array
    allowed: BoolArray | None
    allowed_key: Hashable
    beam_width: int
    unknown: list[Id]
    user_known: bool | None


def answer_calls(
    model: LoadedModel, calls: Sequence[Sequence[Recommend]], *, histories: stores.Histories | None
) -> list[Answers | Refusal]:
    """Answers for each call of one or many requests, searched for together; a Refusal where one cannot be answered."""
    outcomes: list[list[Query] | Refusal] = []
    for requests in calls:
        try:
            outcomes.append([understand(model, request, histories=histories) for request in requests])
        except Refusal as refusal:
            outcomes.append(refusal)
    queries = [query for outcome in outcomes if isinstance(outcome, list) for query in outcome]
    answers = iter(answer_queries(model, queries))
    return [outcome if isinstance(outcome, Refusal) else [next(answers) for _ in outcome] for outcome in outcomes]


def answer_queries(model: LoadedModel, queries: Sequence[Query]) -> Answers:
    """An answer for each query, in their order; those that agree in k, beam and allowed items are searched at once."""
    answers: list[dict[str, Any] | None] = [None] * len(queries)
    together: dict[Hashable, list[int]] = defaultdict(list)
    for index, query in enumerate(queries):
        if not len(query.history):
            answers[index] = _popular(model, query)
        elif query.request.explain:
            answers[index] = _explained(model, query)
        else:
            together[query.request.k, query.beam_width, query.allowed_key].append(index)
    for group in together.values():
        for index, answer in zip(group, _searched(model, [queries[index] for index in group]), strict=True):
            answers[index] = answer
    return [answer for answer in answers if answer is not None]


def understand(model: LoadedModel, request: Recommend, *, histories: stores.Histories | None) -> Query:
    """Look up every id and column of a request; Refusal for a wrong type, or for what is unknown if so asked."""
    model.catalogue.check_columns(request.columns)
    user_known: bool | None = None
    unknown: list[Id] = []
    if request.history is not None:
        history = _encode(model, request.history, field="history", unknown=unknown)
    else:
        stored = _stored_history(request, histories)
        user_known = stored is not None
        history = _encode_stored(model, stored or [])
    excluded = _encode(model, request.exclude, field="exclude", unknown=unknown)
    allowed, allowed_key = _allowed(model, request, unknown=unknown)
    if unknown and request.unknown == "refuse":
        raise Refusal(
            422,
            "unknown_ids",
            f"{len(unknown)} ids are unknown to the model, the first is {shortened(unknown[0])}. Leave them out, or "
            "send unknown='report' or 'ignore'.",
            details=unknown[:SHOWN_IDS],
        )
    if not len(history) and request.without_known_items == "refuse":
        raise Refusal(
            422,
            "no_known_items",
            "The history holds no item that the model knows. Give known items, or send "
            "without_known_items='popularity'.",
        )
    defaults = model.artefact.config.retrieval
    if defaults.exclude_seen if request.exclude_seen is None else request.exclude_seen:
        excluded = np.concatenate([excluded, history])
    return Query(
        request=request,
        history=history,
        excluded=excluded,
        allowed=allowed,
        allowed_key=allowed_key,
        beam_width=request.beam or defaults.beam_width,
        unknown=unknown,
        user_known=user_known,
    )


def check_id_types(model: LoadedModel, ids: Sequence[Id], *, field: str) -> None:
    """422 for an id that is spelt otherwise than the model's."""
    wrong = model.ids.first_of_wrong_type(ids)
    if wrong is not None:
        raise Refusal(
            422,
            "wrong_id_type",
            f"{field}: the item ids of this model are {model.ids.kind}, got {shortened(wrong)}.",
            details=[wrong],
        )


def _encode(model: LoadedModel, ids: Sequence[Id], *, field: str, unknown: list[Id]) -> Int32Array:
    """Dense ids of the known ones; the others are added to `unknown`."""
    if not ids:
        return NO_ITEMS
    check_id_types(model, ids, field=field)
    dense = model.ids.encode(ids)
    is_known = dense >= 0
    if is_known.all():
        return dense
    unknown.extend(raw for raw, known in zip(ids, is_known.tolist(), strict=True) if not known)
    return dense[is_known]


def _stored_history(request: Recommend, histories: stores.Histories | None) -> list[Id] | None:
    user = request.user_id
    if histories is None or user is None:
        raise Refusal(
            422, "no_history_store", "This server keeps no histories: send history, or start it with --histories."
        )
    kind = histories.user_id_kind(user)
    if kind is not None:
        raise Refusal(422, "wrong_id_type", f"user_id: the users of the log are {kind}, got {shortened(user)}.")
    stored = histories.of(user)
    if stored is None and request.unknown == "refuse":
        raise Refusal(422, "unknown_user", f"Nothing is known about user {shortened(user)}.", details=[user])
    return stored


def _encode_stored(model: LoadedModel, stored: Sequence[Id]) -> Int32Array:
    """Dense ids of those stored items that this model knows, whichever way the log spells them."""
    if not stored:
        return NO_ITEMS
    if model.ids.first_of_wrong_type(stored) is not None:
        parsed = (model.ids.parse(str(raw)) for raw in stored)
        stored = [raw for raw in parsed if raw is not None]
    dense = model.ids.encode(stored)
    return dense[dense >= 0]


def _allowed(model: LoadedModel, request: Recommend, *, unknown: list[Id]) -> tuple[BoolArray | None, Hashable]:
    if request.allow is None:
        return None, None
    mask: BoolArray | None = None
    key: Hashable = None
    if request.allow.where:
        mask, key = model.conditions.mask(request.allow.where), condition_key(request.allow.where)
    if request.allow.ids is not None:
        listed = _encode(model, request.allow.ids, field="allow.ids", unknown=unknown)
        by_ids = np.zeros(model.artefact.tree.num_items, dtype=np.bool_)
        by_ids[listed] = True
        mask = by_ids if mask is None else by_ids & mask
        key = key, listed.tobytes()
    return mask, key


def _searched(model: LoadedModel, queries: Sequence[Query]) -> Answers:
    """Answers for queries that agree in k, beam width and allowed items."""
    first = queries[0]
    with model.turn:
        found = model.engine.search(
            _requests(queries),
            k=min(first.request.k, model.artefact.tree.num_items),
            beam_width=max(first.beam_width, first.request.k),
        )
    answers = []
    for items, scores, query in zip(found.items, found.scores, queries, strict=True):
        count = int((items >= 0).sum())
        answers.append(_answer(model, query, items[:count], scores[:count].tolist(), source="beam"))
    return answers


def _requests(queries: Sequence[Query]) -> Requests:
    """Queries that agree in what is allowed, as the engine takes them."""
    return Requests(
        Histories.of_lists([query.history for query in queries]),
        excluded=Histories.of_lists([query.excluded for query in queries]).flattened(),
        allowed=queries[0].allowed,
    )


def _explained(model: LoadedModel, query: Query) -> dict[str, Any]:
    explained = explain_search(model, _requests([query]), k=query.request.k, beam_width=query.beam_width)
    answer = _answer(model, query, explained.items, explained.scores.tolist(), source="beam")
    for item, path in zip(answer["items"], explained.paths, strict=True):
        item["path"] = path
    return answer | {"beam": explained.trace}


def _popular(model: LoadedModel, query: Query) -> dict[str, Any]:
    """The most popular items that the query may get."""
    popular = model.catalogue.most_popular
    if query.allowed is not None:
        popular = popular[query.allowed[popular]]
    if len(query.excluded):
        popular = popular[: query.request.k + len(query.excluded)]
        popular = popular[~np.isin(popular, query.excluded)]
    popular = popular[: query.request.k]
    return _answer(model, query, popular, [None] * len(popular), source="popularity")


def _answer(
    model: LoadedModel, query: Query, items: Int32Array, scores: Sequence[float | None], *, source: str
) -> dict[str, Any]:
    listed: list[dict[str, Any]] = [
        {"item_id": item_id, "rank": rank, "score": score}
        for rank, (item_id, score) in enumerate(zip(model.ids.decode(items), scores, strict=True), start=1)
    ]
    if query.request.columns:
        for item, values in zip(listed, model.catalogue.column_values(items, query.request.columns), strict=True):
            item["columns"] = values
    answer: dict[str, Any] = {
        "items": listed,
        "source": source,
        "history_used": len(query.history),
    }
    if query.user_known is not None:
        answer["user_known"] = query.user_known
    if query.request.unknown == "report":
        answer["unknown_ids"] = query.unknown
    return answer
