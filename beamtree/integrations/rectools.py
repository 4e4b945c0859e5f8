"""beamtree as a model in RecTools pipelines: the same `fit` and `recommend` on a RecTools `Dataset`.

RecTools itself is not imported: a dataset is whatever has its `get_raw_interactions()`, a pandas frame with the columns
user_id, item_id, weight and datetime in external ids. So both may live in one environment, or only one of them.
"""

import warnings
from collections.abc import Iterable
from typing import Any, Literal, Protocol, Self

import pandas as pd

from beamtree.config import Config
from beamtree.data.columns import RATING, TIMESTAMP, USER_ID
from beamtree.data.raw_ids import Ids, id_list
from beamtree.errors import InputError
from beamtree.recommender import DeepTreeRetriever

RECTOOLS_NAMES = {"datetime": TIMESTAMP, "weight": RATING}
RANK = "rank"

Unsupported = Literal["raise", "warn", "ignore"]


class Dataset(Protocol):
    """What is needed of `rectools.dataset.Dataset`."""

    def get_raw_interactions(self) -> pd.DataFrame:
        """All interactions with external ids."""
        ...


class RecToolsModel:
    """A `DeepTreeRetriever` with the methods of a RecTools model.

    >>> model = RecToolsModel(Config.preset("small")).fit(dataset)
    >>> model.recommend(users, dataset, k=10, filter_viewed=True)
    """

    require_recommend_context = False
    """Required by RecTools' cross-validation."""

    def __init__(self, config: Config | None = None) -> None:
        self.retriever = DeepTreeRetriever(config)
        self.is_fitted = False

    def fit(self, dataset: Dataset) -> Self:
        """Learn from the interactions of a dataset, in the order of their times; weights are ratings.

        Features are not read. The settings decide which users are held out to validate with, as in every fit.
        """
        self.retriever.fit(_interactions(dataset))
        self.is_fitted = True
        return self

    def recommend(
        self,
        users: Ids,
        dataset: Dataset,
        k: int,
        filter_viewed: bool,
        items_to_recommend: Ids | None = None,
        add_rank_col: bool = True,
        on_unsupported_targets: Unsupported = "raise",
        context: None = None,
    ) -> pd.DataFrame:
        """The best k items for each user: columns user_id, item_id, score and, unless told otherwise, rank from 1.

        users, items_to_recommend: external ids, the latter all that may be returned; unknown ones among them are passed
        over. dataset: holds the users' histories; it may be another one than that of `fit`. filter_viewed: leave out
        items of the user's history. on_unsupported_targets: users without interactions in the dataset are an error
        (UnknownUsersError), or left out with a warning, or without one. context: of other models; this one reads none.
        InputError before `fit`. A user whose items are all unknown to the model gets popular items, without scores.
        """
        if context is not None:
            raise InputError("This model reads no context, got one. Leave it out.")
        interactions = _interactions(dataset)
        if on_unsupported_targets != "raise":
            users = _supported(users, interactions[USER_ID], should_warn=on_unsupported_targets == "warn")
        table = self.retriever.recommend(
            users, interactions=interactions, k=k, exclude_seen=filter_viewed, allow=items_to_recommend
        )
        frame = pd.DataFrame({column.name: column.to_numpy() for column in table})
        return frame if add_rank_col else frame.drop(columns=RANK)


def _interactions(dataset: Dataset) -> pd.DataFrame:
    read = getattr(dataset, "get_raw_interactions", None)
    if read is None:
        raise InputError(
            f"Expected a RecTools dataset, which has get_raw_interactions(), got {type(dataset).__name__}. Make one "
            "with rectools.dataset.Dataset.construct(frame), or fit a DeepTreeRetriever on the frame itself."
        )
    frame: pd.DataFrame = read()
    return frame.rename(columns=RECTOOLS_NAMES)


def _supported(users: Ids, known: Iterable[Any], *, should_warn: bool) -> list[Any]:
    """The users that are known."""
    listed, has_history = list(id_list(users, what="users")), set(known)
    supported = [user for user in listed if user in has_history]
    if should_warn and len(supported) < len(listed):
        warnings.warn(
            f"{len(listed) - len(supported)} of {len(listed)} users have no interactions in the dataset and get no "
            "recommendations.",
            stacklevel=3,
        )
    return supported
