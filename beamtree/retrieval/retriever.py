"""Recommendations in raw ids: the edge between people's ids and the engine's dense ones."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import polars as pl

from beamtree.artefact import Artefact, load_artefact
from beamtree.data.columns import ITEM_ID, USER_ID
from beamtree.data.dataset import encode_histories
from beamtree.data.interactions import InteractionLog
from beamtree.data.requests import Histories, Requests
from beamtree.data.sequences import Sequences
from beamtree.data.ties import settle_ties
from beamtree.data.vocabulary import Id, Vocabulary
from beamtree.errors import InputError, UnknownIdsError
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.result import SearchResult
from beamtree.retrieval.scorers import build_scorer
from beamtree.tree.filters import Eligibility
from beamtree.types import BoolArray, Int64Array

if TYPE_CHECKING:
    from beamtree.model.part import MakePart

Fallback = Literal["popularity", "error"]
ItemFilter = Iterable[Id] | pl.Expr
"""Items to allow: their ids, or a condition on the item table such as pl.col("category") == "Drama"."""

REQUEST = "request"
DEFAULT_K = 20
USERS_AT_A_TIME = 1024

log = logging.getLogger(__name__)


class Wishes(TypedDict, total=False):
    """What a caller may say about the recommendations; whatever is left out has a default.

    k: how many items for each request (20). beam_width: nodes kept per level (the model's setting).
    exclude_seen: leave out items of the history (the model's setting).
    allow: only these items may be returned (all). exclude: none of these may (nothing is excluded).
    without_known_items: what a history without any known item gets, "popularity" (the default) or an "error".
    """

    k: int
    beam_width: int | None
    exclude_seen: bool | None
    allow: ItemFilter | None
    exclude: Iterable[Id] | None
    without_known_items: Fallback


class Retriever:
    """A loaded model that answers for users of a log or for bare histories."""

    def __init__(self, artefact: Artefact, *, parts: "Mapping[str, MakePart] | None" = None) -> None:
        self.artefact = artefact
        scorer = build_scorer(artefact.weights, artefact.tree, config=artefact.config, parts=parts)
        self.engine = Engine(scorer, artefact.tree)
        self._items = artefact.items

    @classmethod
    def load(cls, directory: str | Path) -> "Retriever":
        """Read a saved model; ArtefactError when it is missing, damaged or of another version."""
        return cls(load_artefact(Path(directory)))

    def recommend_histories(self, histories: Sequence[Sequence[Id]], **wishes: Unpack[Wishes]) -> pl.DataFrame:
        """The best k items for each history of raw ids, oldest first: columns request, item_id, score, rank.

        Unknown ids are skipped. A history with no known item gets the most popular items, with null scores, or raises
        UnknownIdsError, as wished. Fewer than k rows come back only where fewer items are eligible.
        """
        flat = [item for history in histories for item in history]
        offsets = np.concatenate([[0], np.cumsum([len(history) for history in histories])]).astype(np.int64)
        dense = self._items.encode(flat) if flat else np.empty(0, dtype=np.int32)
        known = dense >= 0
        sequences = Sequences(dense[known], np.concatenate([[0], np.cumsum(known)])[offsets])
        allowed_items = self._allowed(wishes.get("allow"), wishes.get("exclude"))
        found = self._recommend(sequences, np.arange(len(histories)), allowed_items=allowed_items, wishes=wishes)
        return self._table(found, keys=pl.Series(REQUEST, np.arange(len(histories))))

    def recommend_users(
        self, interactions: InteractionLog, users: Sequence[Id] | None = None, **wishes: Unpack[Wishes]
    ) -> Iterator[pl.DataFrame]:
        """Tables user_id, item_id, score, rank for users of a log (all of them by default), a thousand at a time."""
        vocabulary, sequences = encode_histories(
            settle_ties(interactions, config=self.artefact.config), items=self._items
        )
        dense_users = np.arange(len(vocabulary)) if users is None else _find_users(users, vocabulary)
        allowed_items = self._allowed(wishes.get("allow"), wishes.get("exclude"))
        for first in range(0, max(len(dense_users), 1), USERS_AT_A_TIME):
            chunk = dense_users[first : first + USERS_AT_A_TIME]
            found = self._recommend(sequences, chunk, allowed_items=allowed_items, wishes=wishes)
            yield self._table(found, keys=vocabulary.decode(chunk).rename(USER_ID))

    def _recommend(
        self,
        sequences: Sequences,
        users: npt.NDArray[np.integer],
        *,
        allowed_items: BoolArray | None,
        wishes: Wishes,
    ) -> SearchResult:
        defaults = self.artefact.config.retrieval
        exclude_seen, beam_width = wishes.get("exclude_seen"), wishes.get("beam_width")
        histories = Histories.of(sequences).take(users)
        excludes_seen = defaults.exclude_seen if exclude_seen is None else exclude_seen
        found = self.engine.search(
            Requests(histories, excluded=histories.flattened() if excludes_seen else None, allowed=allowed_items),
            k=wishes.get("k", DEFAULT_K),
            beam_width=defaults.beam_width if beam_width is None else beam_width,
        )
        strangers = np.flatnonzero(histories.lengths == 0)
        if strangers.size:
            fallback = wishes.get("without_known_items", "popularity")
            self._serve_strangers(found, strangers, allowed_items=allowed_items, fallback=fallback)
        return found

    def _serve_strangers(
        self, found: SearchResult, strangers: Int64Array, *, allowed_items: BoolArray | None, fallback: Fallback
    ) -> None:
        """Put the most popular eligible items where a history holds nothing that the model knows."""
        if fallback == "error":
            raise UnknownIdsError(
                f"{strangers.size} of {len(found.items)} histories hold no item that the model knows. "
                "Give known items, or ask for popular items instead (popularity fallback)."
            )
        log.info("%d of %d histories hold no known item: popular items instead", strangers.size, len(found.items))
        tree = self.artefact.tree
        eligible = tree.item_at_leaf[Eligibility(tree, allowed_items=allowed_items).leaves(0)]
        eligible = np.sort(eligible)
        k = found.items.shape[1]
        popular = eligible[np.argsort(-self.artefact.popularity[eligible], kind="stable")[:k]]
        found.items[strangers] = -1
        found.items[strangers, : len(popular)] = popular
        found.scores[strangers] = np.nan

    def _allowed(self, allow: ItemFilter | None, exclude: Iterable[Id] | None) -> BoolArray | None:
        """One flag per item, or None where everything is allowed; unknown ids among them are skipped."""
        if allow is None and exclude is None:
            return None
        allowed = np.ones(len(self._items), dtype=np.bool_)
        if isinstance(allow, pl.Expr):
            allowed = _matching(self.artefact.item_table, allow)
        elif allow is not None:
            allowed = np.zeros(len(self._items), dtype=np.bool_)
            allowed[self._known(allow)] = True
        if exclude is not None:
            allowed[self._known(exclude)] = False
        return allowed

    def _known(self, ids: Iterable[Id]) -> npt.NDArray[np.int32]:
        raw = list(ids)
        dense = self._items.encode(raw) if raw else np.empty(0, dtype=np.int32)
        return dense[dense >= 0]

    def _table(self, found: SearchResult, *, keys: pl.Series) -> pl.DataFrame:
        rows, columns = np.nonzero(found.items >= 0)
        return pl.DataFrame(
            {
                keys.name: keys.gather(rows),
                ITEM_ID: self._items.decode(found.items[rows, columns]),
                "score": pl.Series(found.scores[rows, columns]).fill_nan(None),
                "rank": (columns + 1).astype(np.int32),
            }
        )


def _find_users(users: Sequence[Id], vocabulary: Vocabulary) -> npt.NDArray[np.int32]:
    dense = vocabulary.encode(users)
    missing = [user for user, index in zip(users, dense, strict=True) if index < 0]
    if missing:
        raise UnknownIdsError(
            f"{len(missing)} of {len(users)} users are not in the log, the first is {missing[0]!r}. "
            "Give users of the log, or their histories with recommend_histories."
        )
    return dense


def _matching(item_table: pl.DataFrame, condition: pl.Expr) -> BoolArray:
    try:
        matches = item_table.with_columns(condition.fill_null(False).alias("is_allowed"))["is_allowed"]
    except pl.exceptions.PolarsError as error:
        raise InputError(
            f"The condition on items cannot be used: {error}. The item table has the columns "
            f"{', '.join(item_table.columns)}."
        ) from error
    if matches.dtype != pl.Boolean:
        raise InputError(f"A condition on items is true or false for each item, got {matches.dtype}.")
    return matches.to_numpy().copy()
