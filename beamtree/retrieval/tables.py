"""Recommendations as tables: for histories, or for the users of a log."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from beamtree.data.columns import ITEM_ID
from beamtree.data.interactions import InteractionLog
from beamtree.data.raw_ids import Ids, id_list, plain_list, unknown_ids
from beamtree.data.request_features import Values
from beamtree.data.ties import settle_ties
from beamtree.data.vocabulary import Id
from beamtree.errors import InputError, UnknownIdsError, UnknownUsersError
from beamtree.retrieval.allow_lists import within
from beamtree.retrieval.allowed import known_items
from beamtree.retrieval.histories import LogHistories
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import Recommendations, RecommendOptions, RecommendRequest
from beamtree.retrieval.similar import SimilarItems, Similarity
from beamtree.retrieval.user_rows import UserRows

REQUEST = "request"
REQUESTS_AT_A_TIME = 1024

log = logging.getLogger(__name__)


def recommend_histories(
    recommender: Recommender,
    histories: Any,
    *,
    options: RecommendOptions,
    user_features: Sequence[Values] | None = None,
    context: Sequence[Values] | None = None,
) -> pl.DataFrame:
    """The best k items for each history of raw ids, oldest first: columns request, item_id, score, rank.

    With explanations also a column for each part of the score, because_of: ids of the history, strongest first, and
    reason_parts: the part of the score that each of them contributes to.
    Unknown ids are skipped. A history with no known item gets the most popular items, with null scores, or raises
    ColdStartError, as the options say, unless it has known features. user_features, context: values by column
    for each history. Fewer than k rows come back only where fewer items are eligible.
    """
    listed = list_of_histories(histories)
    requests = [
        RecommendRequest(history=history, user_features=user, context=around, options=options)
        for history, user, around in zip(
            listed,
            one_each(user_features, listed, what="user_features"),
            one_each(context, listed, what="context"),
            strict=True,
        )
    ]
    encoded = recommender.encode(requests)
    tables = [_table(recommender, [], keys=pl.Series(REQUEST, [], dtype=pl.Int64), options=options)]
    for first in range(0, len(encoded), REQUESTS_AT_A_TIME):
        answers = recommender.answer(encoded[first : first + REQUESTS_AT_A_TIME])
        keys = pl.Series(REQUEST, np.arange(first, first + len(answers)))
        tables.append(_table(recommender, answers, keys=keys, options=options))
    return pl.concat(tables)


@dataclass(frozen=True, eq=False)
class UserRecommendations:
    """Tables user_id, item_id, score, rank for users of a log, REQUESTS_AT_A_TIME users at a time.

    allow_lists: allowed ids by user; other users are not restricted by them.
    """

    recommender: Recommender
    histories: LogHistories
    users: pl.Series
    options: RecommendOptions
    rows: UserRows
    context: Values
    allow_lists: Mapping[Id, Ids] = field(default_factory=dict)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for first in range(0, max(len(self.users), 1), REQUESTS_AT_A_TIME):
            keys = self.users[first : first + REQUESTS_AT_A_TIME]
            requests = [
                RecommendRequest(
                    user=user, user_features=self.rows.of(user), context=self.context, options=self._options_of(user)
                )
                for user in keys
            ]
            answers = self.recommender.recommend(requests, histories=self.histories)
            yield _table(self.recommender, answers, keys=keys, options=self.options)

    def _options_of(self, user: Id) -> RecommendOptions:
        if user not in self.allow_lists:
            return self.options
        return replace(self.options, allow=within(self.options.allow, self.allow_lists[user]))


def recommend_users(
    recommender: Recommender,
    interactions: InteractionLog,
    *,
    users: Ids | None,
    options: RecommendOptions,
    allow_lists: Mapping[Id, Ids] | None = None,
    user_table: pl.DataFrame | None = None,
    context: Values | None = None,
) -> UserRecommendations:
    """Recommendations for users of a log, all of them by default, made while they are iterated over.

    allow_lists: as in `UserRecommendations`; user_table: features of users; context: that of all requests.
    UnknownUsersError for users that the log does not have.
    """
    histories = LogHistories(settle_ties(interactions, config=recommender.artefact.config))
    wanted = histories.user_ids if users is None else _known_users(users, histories)
    rows = UserRows(user_table, recommender.artefact.request_features)
    return UserRecommendations(recommender, histories, wanted, options, rows, context or {}, allow_lists or {})


def similar_items(recommender: Recommender, items: Ids, *, k: int, by: Similarity | None) -> pl.DataFrame:
    """The k items nearest to each item: columns item_id, similar_id, similarity, rank.

    UnknownIdsError for items that the model has never seen.
    """
    unknown: list[Id] = []
    dense = known_items(recommender.ids, items, what="items", unknown=unknown)
    if unknown:
        raise UnknownIdsError(f"The model does not know the item {unknown[0]!r}: nothing is near it.", unknown)
    similar = SimilarItems(recommender.artefact)
    near = [similar.near(int(item), count=k, by=by) for item in dense]
    counts = [len(found) for found, _ in near]
    return pl.DataFrame(
        {
            ITEM_ID: pl.Series(recommender.ids.decode(np.repeat(dense, counts)), dtype=_id_type(recommender)),
            "similar_id": pl.Series(
                [raw for found, _ in near for raw in recommender.ids.decode(found)], dtype=_id_type(recommender)
            ),
            "similarity": pl.Series([float(value) for _, values in near for value in values], dtype=pl.Float32),
            "rank": pl.Series([rank for count in counts for rank in range(1, count + 1)], dtype=pl.Int32),
        }
    )


def list_of_histories(histories: Any, *, what: str = "histories") -> list[Any]:
    """Lists of ids one by one; InputError for a bare text, and for ids that stand where lists of them are meant."""
    if isinstance(histories, str | bytes):
        raise InputError(f"{what}: expected a list of lists of ids, got {histories!r}. Give [[{histories!r}]].")
    listed = plain_list(histories, what=what)
    for history in listed:
        if isinstance(history, str | bytes | int | np.generic):
            raise InputError(
                f"{what}: expected a list of lists of ids, got the id {history!r} in the place of a list. "
                f"For one list give [[{history!r}, ...]]."
            )
    return listed


def one_each(values: Sequence[Values] | None, histories: list[Any], *, what: str) -> Sequence[Values]:
    """Values by column for each history, empty ones where none are given; InputError where there are not as many."""
    if values is None:
        return [{}] * len(histories)
    if isinstance(values, Mapping) or len(values) != len(histories):
        got = "one for all" if isinstance(values, Mapping) else str(len(values))
        raise InputError(f"Expected {what} for each of {len(histories)} histories, got {got}. Give a list of them.")
    return values


def _known_users(users: Ids, histories: LogHistories) -> pl.Series:
    listed = histories.users.check(id_list(users, what="users"), what="users")
    dense = histories.users.encode(listed)
    missing = unknown_ids(listed, dense)
    if missing:
        raise UnknownUsersError(
            f"{len(missing)} of {len(dense)} users are not in the log, the first is {missing[0]!r}. "
            "Give users of the log, or their histories with recommend_histories.",
            missing,
        )
    return histories.user_ids.gather(dense)


def _table(
    recommender: Recommender, answers: Sequence[Recommendations], *, keys: pl.Series, options: RecommendOptions
) -> pl.DataFrame:
    counts = np.array([len(answer.items) for answer in answers], dtype=np.int64)
    num_cold = sum(answer.source == "popularity" for answer in answers)
    if num_cold:
        log.info("%d of %d histories hold no known item: popular items instead", num_cold, len(answers))
    columns = {
        keys.name: keys.gather(np.repeat(np.arange(len(answers)), counts)),
        ITEM_ID: pl.Series([item for answer in answers for item in answer.items], dtype=_id_type(recommender)),
        "score": pl.Series([score for answer in answers for score in answer.scores], dtype=pl.Float32),
        "rank": pl.Series([rank for count in counts for rank in range(1, count + 1)], dtype=pl.Int32),
    }
    if options.explain:
        columns |= _explanations(recommender, answers)
    return pl.DataFrame(columns)


def _explanations(recommender: Recommender, answers: Sequence[Recommendations]) -> dict[str, pl.Series]:
    """Contributions of the parts, contributing ids of the history, and their parts; null for popular items."""
    listed = [one for answer in answers for one in answer.explanations or [None] * len(answer.items)]
    shares = {
        part: pl.Series([None if one is None else one.parts[part] for one in listed], dtype=pl.Float32)
        for part in recommender.explainer.scorers
    }
    because: list[list[Id] | None] = [
        None if one is None else [evidence.item_id for evidence in one.because_of] for one in listed
    ]
    through: list[list[str] | None] = [
        None if one is None else [evidence.part for evidence in one.because_of] for one in listed
    ]
    return shares | {
        "because_of": pl.Series(because, dtype=pl.List(_id_type(recommender))),
        "reason_parts": pl.Series(through, dtype=pl.List(pl.String)),
    }


def _id_type(recommender: Recommender) -> type[pl.DataType]:
    return pl.Int64 if recommender.ids.holds_integers else pl.String
