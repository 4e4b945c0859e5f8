"""Go on with a fitted model: read the new rows and tables, learn from them, and take the result unless it is worse."""

from pathlib import Path

import polars as pl

from beamtree.catalogue.item_rows import read_new_items
from beamtree.data.columns import ITEM_ID
from beamtree.data.interactions import InteractionLog, read_log
from beamtree.data.tables import Source
from beamtree.data.users import read_users
from beamtree.recommender.fitted import Fitted
from beamtree.recommender.listening import listening
from beamtree.retrieval.recommender import Recommender
from beamtree.training.events import Listener, ModelUpdated
from beamtree.training.interrupt import stop_requests
from beamtree.updating.encoder import Continuation
from beamtree.updating.update import update_model


def update_fitted(
    fitted: Fitted,
    interactions: InteractionLog | Source,
    *,
    items: Source | None,
    users: Source | None,
    force: bool,
    work_dir: str | Path | None,
    resume: bool,
    progress: bool | None,
    listen: Listener | None,
) -> Fitted:
    """What was fitted after new rows, without its log; see `DeepTreeRetriever.update`."""
    artefact, settings = fitted.artefact, fitted.artefact.config.log
    is_in_our_names = isinstance(items, pl.DataFrame) and ITEM_ID in items.columns
    columns = {} if is_in_our_names else settings.item_columns
    item_table = None if items is None else read_new_items(items, like=artefact.item_table, columns=columns)
    directory = None if work_dir is None else Path(work_dir)
    with listening(listen, progress=progress) as say, stop_requests() as should_stop:
        updated = update_model(
            artefact,
            fitted.update_state(),
            read_log(interactions, settings),
            items=item_table,
            users=None if users is None else read_users(users, columns=settings.interaction_columns),
            continuation=Continuation(say, should_stop, directory, resume=resume),
        )
        if not force:
            updated.refuse_if_worse()
        say(ModelUpdated(tuple(updated.lines())))
    return Fitted(Recommender(updated.artefact), state=updated.state)
