"""Scores of given items: for pairs of a user and an item, or for histories and items, as tables."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from beamtree.data.columns import ITEM_ID, USER_ID
from beamtree.data.interactions import InteractionLog
from beamtree.data.parse import ID_KINDS, parse_ids, unify_ids
from beamtree.data.raw_ids import id_list
from beamtree.data.rejects import ParsedColumn, check_rows
from beamtree.data.request_features import Values
from beamtree.data.tables import Source, read_tables
from beamtree.data.ties import settle_ties
from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import DataError, InputError
from beamtree.retrieval.histories import LogHistories
from beamtree.retrieval.recommender import EncodedRequest, Recommender
from beamtree.retrieval.request import RecommendRequest
from beamtree.retrieval.tables import REQUEST, REQUESTS_AT_A_TIME, list_of_histories, one_each
from beamtree.retrieval.user_rows import UserRows
from beamtree.types import NOTHING, Float32Array, Int32Array

log = logging.getLogger(__name__)


def read_pairs(pairs: Source | Iterable[tuple[Any, Any]], *, columns: dict[str, str] | None = None) -> pl.DataFrame:
    """Pairs as a table user_id, item_id: from any table or file, or from (user, item) tuples.

    columns: beamtree's name -> the name that the pairs may have instead, as in the log. DataError for a missing column
    or id.
    """
    if isinstance(pairs, Iterator):
        pairs = list(pairs)
    if isinstance(pairs, list | tuple):
        for pair in pairs:
            if isinstance(pair, str | bytes) or not hasattr(pair, "__len__") or len(pair) != 2:
                raise InputError(
                    f"Expected pairs of a user and an item, such as [('u7', 'i3')]; got {pair!r} among them."
                )
        users, items = ([pair[place] for pair in pairs] for place in (0, 1))
        pairs = pl.DataFrame({USER_ID: _column(users), ITEM_ID: _column(items)})
    parts = []
    for table in read_tables(pairs, wanted=None, headerless=(USER_ID, ITEM_ID)):
        mapped = {ours: (columns or {}).get(ours, ours) for ours in (USER_ID, ITEM_ID)}
        names = {ours: theirs if theirs in table.columns else ours for ours, theirs in mapped.items()}
        missing = [ours for ours, theirs in names.items() if theirs not in table.columns]
        if missing:
            raise DataError(
                f"{table.file}: pairs have the columns {USER_ID} and {ITEM_ID}, or their names in the log; "
                f"no {' and '.join(missing)} among {', '.join(table.columns)}. Rename the columns."
            )
        parsed, _ = check_rows(
            table.numbered(),
            columns=[ParsedColumn(theirs, ours, parse_ids, ID_KINDS) for ours, theirs in names.items()],
            table=table,
            bad_rows="error",
            remedy="Fix the row.",
        )
        parts.append(parsed)
    if not parts:
        raise DataError(f"{pairs}: no pairs. Expected a table with {USER_ID} and {ITEM_ID}.")
    for name in (USER_ID, ITEM_ID):
        unified = unify_ids([part[name] for part in parts])
        parts = [part.with_columns(column) for part, column in zip(parts, unified, strict=True)]
    return pl.concat(parts)


def score_pairs(
    recommender: Recommender,
    interactions: InteractionLog,
    pairs: pl.DataFrame,
    *,
    user_table: pl.DataFrame | None = None,
    context: Values | None = None,
) -> pl.DataFrame:
    """Each pair (user_id, item_id) with its score, in the order of the pairs.

    The score is null where the model does not know the item or it was removed, and where it knows neither an item of
    the user's history in the log nor a feature of the request. user_table: features of users; context: that of
    all requests. FeatureError for unknown columns and values of another type.
    """
    histories = LogHistories(settle_ties(interactions, config=recommender.artefact.config))
    users, items = (
        _dense(Vocabulary(histories.user_ids), pairs[USER_ID]),
        _dense(recommender.artefact.items, pairs[ITEM_ID]),
    )
    asked = np.unique(users[users != NOTHING])
    rows = UserRows(user_table, recommender.artefact.request_features)
    named = [histories.user_ids[int(user)] for user in asked]
    encoded = recommender.encode(
        [RecommendRequest(user=user, user_features=rows.of(user), context=context or {}) for user in named],
        histories=histories,
    )
    scores = _score(
        recommender,
        encoded,
        requests=np.searchsorted(asked, users),
        items=np.where(users == NOTHING, NOTHING, items),
    )
    return pairs.select(USER_ID, ITEM_ID).with_columns(_nullable(scores))


def score_histories(
    recommender: Recommender,
    histories: Any,
    items: Any,
    *,
    user_features: Sequence[Values] | None = None,
    context: Sequence[Values] | None = None,
) -> pl.DataFrame:
    """Scores of chosen items for bare histories: columns request, item_id, score.

    items: a list of ids for each history; user_features, context: values by column for each. The score is null where
    the model does not know the item, or neither an item of the history nor a feature. InputError where there are not
    as many lists as histories, FeatureError for unknown columns and values of another type.
    """
    listed, wanted = list_of_histories(histories), list_of_histories(items, what="items")
    if len(listed) != len(wanted):
        raise InputError(f"Expected a list of items for each of {len(listed)} histories, got {len(wanted)}.")
    encoded = recommender.encode(
        RecommendRequest(history=history, user_features=user, context=around)
        for history, user, around in zip(
            listed,
            one_each(user_features, listed, what="user_features"),
            one_each(context, listed, what="context"),
            strict=True,
        )
    )
    raw = [recommender.ids.check(id_list(some, what="items"), what="items") for some in wanted]
    requests = np.repeat(np.arange(len(raw)), [len(some) for some in raw])
    flat = [one for some in raw for one in some]
    kind = pl.Int64 if recommender.ids.holds_integers else pl.String
    scores = _score(recommender, encoded, requests=requests, items=recommender.ids.encode(flat))
    return pl.DataFrame({REQUEST: requests, ITEM_ID: pl.Series(flat, dtype=kind)}).with_columns(_nullable(scores))


def _score(
    recommender: Recommender, encoded: Sequence[EncodedRequest], *, requests: np.ndarray[Any, Any], items: Int32Array
) -> Float32Array:
    """Scores (n,) of dense items (n,) for the encoded requests that `requests` (n,) number.

    NaN where the item is unknown or was removed, and for cold starts.
    """
    scores = np.full(len(items), np.nan, dtype=np.float32)
    tree = recommender.artefact.tree
    places = np.flatnonzero((items != NOTHING) & ~np.isin(items, tree.removed))
    places = places[np.argsort(requests[places], kind="stable")]
    bounds = np.searchsorted(requests[places], np.arange(len(encoded) + 1))
    warm = [row for row, one in enumerate(encoded) if not one.is_cold_start and bounds[row] < bounds[row + 1]]
    for first in range(0, len(warm), REQUESTS_AT_A_TIME):
        block = warm[first : first + REQUESTS_AT_A_TIME]
        prepared = recommender.engine.scorer.prepare(recommender.batch([encoded[row] for row in block]))
        for number, row in enumerate(block):
            own = places[bounds[row] : bounds[row + 1]]
            scores[own] = prepared.scores(number, tree.height, tree.leaf_of_item[items[own]].astype(np.int64))
    return scores


def _dense(vocabulary: Vocabulary, ids: pl.Series) -> Int32Array:
    """Dense ids, -1 where unknown; '12' and 12 name the same."""
    return vocabulary.encode(ids.cast(vocabulary.ids.dtype, strict=False))


def _nullable(scores: Float32Array) -> pl.Series:
    named = pl.Series("score", scores).fill_nan(None)
    if named.null_count():
        log.info(
            "%d of %d pairs have no score: the item, or the whole history, is unknown", named.null_count(), len(named)
        )
    return named


def _column(ids: list[Any]) -> pl.Series:
    try:
        return pl.Series(ids)
    except (TypeError, pl.exceptions.PolarsError) as problem:
        raise InputError(f"Ids are all integers or all texts, got a mixture: {problem}") from problem
