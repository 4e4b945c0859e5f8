"""From checked bodies to answers: what a request asks the recommender, refusals, and columns of the item table."""

from collections.abc import Sequence
from typing import Any

from beamtree.errors import ColdStartError, IdTypeError, UnknownIdsError, UnknownUsersError
from beamtree.retrieval.recommender import EncodedRequest
from beamtree.retrieval.request import Allow, Explanation, Recommendations, RecommendOptions, RecommendRequest
from beamtree.serving.api_error import ApiError, wrong_id_type
from beamtree.serving.conditions import ItemConditions
from beamtree.serving.histories import Histories
from beamtree.serving.limits import SHOWN_IDS
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.schemas import Recommend

Answers = list[dict[str, Any]]


def answer_calls(
    model: LoadedModel, calls: Sequence[Sequence[Recommend]], *, histories: Histories | None
) -> list[Answers | ApiError]:
    """Answers for each call of one or many requests, searched for together; a ApiError where one cannot be answered."""
    outcomes: list[list[EncodedRequest] | ApiError] = []
    for asked in calls:
        try:
            outcomes.append(understand(model, asked, histories=histories))
        except ApiError as refusal:
            outcomes.append(refusal)
    encoded = [one for outcome in outcomes if isinstance(outcome, list) for one in outcome]
    answers = iter(model.recommender.answer(encoded))
    return [
        outcome
        if isinstance(outcome, ApiError)
        else [_answer(model, body, one, next(answers)) for body, one in zip(asked, outcome, strict=True)]
        for asked, outcome in zip(calls, outcomes, strict=True)
    ]


def understand(model: LoadedModel, asked: Sequence[Recommend], *, histories: Histories | None) -> list[EncodedRequest]:
    """Look up every id and column of the requests of a call; ApiError for what is wrong, or unknown if so asked."""
    for one in asked:
        model.catalogue.check_columns(one.columns)
    users = [one.user_id for one in asked if one.user_id is not None]
    if users and histories is None:
        raise ApiError(
            422, "no_history_store", "This server keeps no histories: send history, or start it with --histories."
        )
    try:
        if histories is not None:
            histories.check_users(users)
        return model.recommender.encode(map(_request, asked), histories=histories)
    except IdTypeError as error:
        raise wrong_id_type(error) from None
    except ColdStartError as error:
        raise ApiError(422, "no_known_items", str(error)) from None
    except UnknownIdsError as error:
        code = "unknown_user" if isinstance(error, UnknownUsersError) else "unknown_ids"
        raise ApiError(422, code, str(error), details=error.ids[:SHOWN_IDS]) from None


def _request(asked: Recommend) -> RecommendRequest:
    allow = asked.allow
    return RecommendRequest(
        history=asked.history,
        user=asked.user_id,
        exclude=asked.exclude or None,
        options=RecommendOptions(
            k=asked.k,
            beam=asked.beam,
            exclude_seen=asked.exclude_seen,
            allow=None
            if allow is None
            else Allow(ids=allow.ids, where=ItemConditions(allow.where) if allow.where else None),
            fallback=asked.fallback,
            unknown=asked.unknown,
            explain=asked.explain,
        ),
    )


def _answer(model: LoadedModel, asked: Recommend, encoded: EncodedRequest, found: Recommendations) -> dict[str, Any]:
    listed: list[dict[str, Any]] = [
        {"item_id": item_id, "rank": rank, "score": score}
        for rank, (item_id, score) in enumerate(zip(found.items, found.scores, strict=True), start=1)
    ]
    answer: dict[str, Any] = {"items": listed, "source": found.source, "history_used": found.history_used}
    if asked.columns:
        items = model.recommender.ids.encode(found.items)
        for item, values in zip(listed, model.catalogue.column_values(items, asked.columns), strict=True):
            item["columns"] = values
    if found.user_known is not None:
        answer["user_known"] = found.user_known
    if asked.unknown == "report":
        answer["unknown_ids"] = found.unknown_ids
    if found.explanations is not None:
        trace = model.recommender.trace(encoded, found)
        for item, path, explanation in zip(listed, trace.paths, found.explanations, strict=True):
            item.update(path=path, **_explained(explanation))
        answer["beam"] = trace.beam
    return answer


def _explained(explanation: Explanation) -> dict[str, Any]:
    return {"parts": explanation.parts, "because_of": explanation.because_of}
