"""From validated bodies to answers: the request to the recommender, its errors, and columns of the item table."""

from collections.abc import Sequence
from typing import Any

from beamtree.errors import ColdStartError, FeatureError, IdTypeError, UnknownIdsError, UnknownUsersError
from beamtree.retrieval.recommender import EncodedRequest
from beamtree.retrieval.request import Allow, Explanation, Recommendations, RecommendOptions, RecommendRequest
from beamtree.serving.api_error import ApiError, wrong_id_type
from beamtree.serving.conditions import ItemConditions
from beamtree.serving.histories import Histories
from beamtree.serving.limits import SHOWN_IDS
from beamtree.serving.loaded_model import LoadedModel
from beamtree.serving.outcome import outcome_of
from beamtree.serving.schemas.recommend_body import Recommend

Answers = list[dict[str, Any]]


NO_KNOWN_ITEMS = (
    "The history holds no item that the model knows. Give known items, or ask for popular items instead "
    "(fallback='popularity')."
)


def answer_calls(
    model: LoadedModel, calls: Sequence[Sequence[Recommend]], *, histories: Histories | None
) -> list[Answers | BaseException]:
    """The answers of each call of one or many requests, searched in one batch.

    A call that cannot be answered gets its exception instead: ApiError for an invalid request, anything else for a
    failure. Other calls are not affected: where the batch fails, each call is searched on its own.
    """
    encoded_calls = [outcome_of(encode_call, model, asked, histories=histories) for asked in calls]
    usable = [encoded for encoded in encoded_calls if not isinstance(encoded, BaseException)]
    together = outcome_of(model.recommender.answer, [one for encoded in usable for one in encoded])
    found = None if isinstance(together, BaseException) else iter(together)

    def answer(asked: Sequence[Recommend], encoded: Sequence[EncodedRequest]) -> Answers:
        own = model.recommender.answer(encoded) if found is None else [next(found) for _ in encoded]
        return [_answer(model, *one) for one in zip(asked, encoded, own, strict=True)]

    return [
        encoded if isinstance(encoded, BaseException) else outcome_of(answer, asked, encoded)
        for asked, encoded in zip(calls, encoded_calls, strict=True)
    ]


def encode_call(model: LoadedModel, asked: Sequence[Recommend], *, histories: Histories | None) -> list[EncodedRequest]:
    """Encode the requests of a call; ApiError for invalid ids and columns, and for unknown ids if these are refused."""
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
    except ColdStartError:
        raise ApiError(422, "no_known_items", NO_KNOWN_ITEMS) from None
    except FeatureError as error:
        raise ApiError(422, "wrong_features", str(error)) from None
    except UnknownIdsError as error:
        code = "unknown_user" if isinstance(error, UnknownUsersError) else "unknown_ids"
        raise ApiError(422, code, str(error), details=error.ids[:SHOWN_IDS]) from None


def _request(asked: Recommend) -> RecommendRequest:
    allow = asked.allow
    return RecommendRequest(
        history=asked.history,
        user=asked.user_id,
        user_features=asked.user_features,
        context=asked.context,
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
