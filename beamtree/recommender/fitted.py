"""The state of a model after a fit, an update or loading."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import polars as pl

from beamtree.artefact import Artefact, save_artefact
from beamtree.baselines.comparison import Comparison
from beamtree.data.dataset import Dataset
from beamtree.data.interactions import InteractionLog, read_log
from beamtree.data.prepare import prepare_log
from beamtree.data.tables import Source
from beamtree.data.users import read_users
from beamtree.errors import InputError
from beamtree.evaluation.metrics import Metrics
from beamtree.retrieval.recommender import Recommender

if TYPE_CHECKING:
    from beamtree.updating.state import UpdateState


@dataclass(frozen=True, eq=False)
class Fitted:
    """A recommender and what was there when it was fitted: a loaded model carries neither log nor user table.

    test_metrics, test_comparison: of the test users at the model's own beam width and the usual cutoffs, once measured.
    state: what an update needs; a loaded model has it beside its folder, and reads it before its first update.
    """

    recommender: Recommender
    interactions: InteractionLog | None = None
    user_table: pl.DataFrame | None = None
    dataset: Dataset | None = None
    test_metrics: Metrics | None = None
    test_comparison: Comparison | None = None
    state: "UpdateState | None" = None
    folder: Path | None = None

    @property
    def artefact(self) -> Artefact:
        """What is saved of it."""
        return self.recommender.artefact

    def histories(self, interactions: InteractionLog | Source | None) -> InteractionLog:
        """The log that holds the histories, by default the one of the fit; InputError where there is none."""
        known = self.interactions if interactions is None else read_log(interactions, self.artefact.config.log)
        if known is None:
            raise InputError(
                "A loaded model carries no histories. Pass the log with interactions=..., or the histories themselves "
                "to recommend_histories or score_histories."
            )
        return known

    def users(self, table: Source | None) -> pl.DataFrame | None:
        """A user table: as given, else the one that was fitted with."""
        columns = self.artefact.config.log.interaction_columns
        return self.user_table if table is None else read_users(table, columns=columns)

    def prepare(self, interactions: InteractionLog | Source, *, users: Source | None = None) -> Dataset:
        """The log of the fit as training saw it, after filters and with dense ids. users: its user table."""
        artefact, config = self.artefact, self.artefact.config
        return prepare_log(
            read_log(interactions, config.log),
            config=config,
            items=artefact.fitted_items if config.data.catalogue == "items" else None,
            users=self.users(users),
            read=artefact.request_features,
        ).dataset

    def answering_with(self, recommender: Recommender) -> Self:
        """The same after its catalogue changed, so that nothing is measured yet."""
        return replace(self, recommender=recommender, test_metrics=None, test_comparison=None)

    def update_state(self) -> "UpdateState":
        """What an update needs: from the fit, or from beside the folder that it was loaded from."""
        from beamtree.updating.state import load_state

        if self.state is not None:
            return self.state
        if self.folder is None:
            raise InputError("This model has no log to go on from: fit it, or load it from the folder it lies in.")
        return load_state(self.folder, fingerprint=self.artefact.data_fingerprint)

    def save(self, folder: Path) -> None:
        """Write the model to a folder as a whole, and what an update needs, where it is at hand, beside it."""
        from beamtree.updating.state import forget_others, save_state

        fingerprint = self.artefact.data_fingerprint
        if self.state is not None:
            save_state(folder, self.state, fingerprint=fingerprint)
        save_artefact(folder, self.artefact)
        if self.state is not None:
            forget_others(folder, fingerprint=fingerprint)
