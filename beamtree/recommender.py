"""`DeepTreeRetriever`: fit on a log, recommend, save, load. Importing it loads no torch; fitting does."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, Self

import polars as pl

from beamtree.artefact import Artefact, save_artefact
from beamtree.baselines.comparison import Comparison, compare
from beamtree.baselines.protocol import Budget
from beamtree.baselines.registry import Asked, choose_baselines, reasons_left_out
from beamtree.catalogue.change import change_catalogue
from beamtree.catalogue.item_rows import read_new_items
from beamtree.config import Config, PresetName
from beamtree.data.columns import ITEM_ID
from beamtree.data.dataset import Dataset
from beamtree.data.interactions import InteractionLog, read_log
from beamtree.data.items import read_items
from beamtree.data.prepare import prepare_log
from beamtree.data.raw_ids import Ids
from beamtree.data.request_features import Values
from beamtree.data.split import HeldOut
from beamtree.data.tables import Source
from beamtree.data.users import read_users
from beamtree.data.vocabulary import Id
from beamtree.errors import DataError, InputError, SettingsError
from beamtree.evaluation.answers import Answers, BeamSearch, ExactScan
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.metrics import Metrics
from beamtree.evaluation.protocol import CUTOFFS, checked_cutoffs, evaluate, split_dataset
from beamtree.model_card import write_model_card
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import DEFAULT_K, Explanation, Fallback, ItemFilter, RecommendOptions
from beamtree.retrieval.scorers import check_part_names
from beamtree.retrieval.scoring import read_pairs, score_histories, score_pairs
from beamtree.retrieval.similar import Similarity
from beamtree.retrieval.tables import recommend_histories, recommend_users, similar_items

if TYPE_CHECKING:
    from beamtree.cluster.connection import Cluster
    from beamtree.fitting.backend import FitBackend
    from beamtree.fitting.estimator import MakeEstimator
    from beamtree.model.next_item import NextItemModel
    from beamtree.model.part import MakePart
    from beamtree.training.estimate import TrainedEstimator
    from beamtree.training.events import Event, Listener
    from beamtree.training.strategies import Strategies
    from beamtree.updating.state import UpdateState

log = logging.getLogger(__name__)

BEAM, EXACT = "beam", "exact"
"""What a comparison calls the model's own answers."""


class DeepTreeRetriever:
    """A deep preference model and its tree, learned from an interaction log.

    >>> model = DeepTreeRetriever(preset="small").fit("ratings.parquet", items="items.csv")
    >>> model.recommend(users=["u7"], k=20)
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        preset: PresetName | None = None,
        parts: "Mapping[str, MakePart] | None" = None,
    ) -> None:
        """config: all settings; preset: those of a preset instead. parts: more parts of the score by name, written in
        torch; see `beamtree.model.part`.

        InputError for a name that beamtree uses itself, and for settings given twice.
        """
        check_part_names(parts or {})
        if config is not None and (preset is not None or not isinstance(config, Config)):
            raise InputError(
                "Expected settings as a Config, or the name of a preset: preset='small'; got "
                f"{'both' if isinstance(config, Config) else repr(config)}."
            )
        self._given = (Config() if preset is None else Config.preset(preset)) if config is None else config
        self._parts = dict(parts or {})
        self._recommender: Recommender | None = None
        self._interactions: InteractionLog | None = None
        self._user_table: pl.DataFrame | None = None
        self._dataset: Dataset | None = None
        self._test_metrics: Metrics | None = None
        self._test_comparison: Comparison | None = None
        self._state: UpdateState | None = None
        self._folder: Path | None = None

    def fit(
        self,
        interactions: InteractionLog | Source,
        items: Source | None = None,
        *,
        users: Source | None = None,
        work_dir: str | Path | None = None,
        resume: bool = False,
        estimator_cache: str | Path | None = None,
        estimator: "MakeEstimator | None" = None,
        strategies: "Strategies | None" = None,
        cluster: "Cluster | str | None" = None,
        progress: bool | None = None,
        listen: "Listener | None" = None,
    ) -> Self:
        """Learn from a log (a file, folder, glob or table, or what `read_interactions` gave).

        items: a table with item_id and, where known, category and title; `log.columns` maps other names. users: a
        table with user_id, called as in the log, and columns that are read as features.
        work_dir: a folder for checkpoints, of one fit at a time. With it, Ctrl-C stops after the step at hand, and
        `resume` goes on to the very bytes that an uninterrupted run gives. estimator_cache: a folder where runs on the
        same data, split and settings find each other's estimator of rectified labels. estimator: makes another one than
        the encoder from the data set and its split; a resumed fit has to be given the same. strategies: how negatives
        are drawn, what labels count and where items are placed, instead of what the settings choose; see
        `beamtree.training.strategies`. cluster: a Ray cluster that reads Parquet files, learns and counts, or its
        address; work_dir has to be on a disk that all nodes share then. progress: show on standard error what was read
        and how far learning is; by default in a terminal and in a notebook. listen: called with each event of the
        training, instead.
        """
        try:
            from beamtree.fitting.fit import fit_model
            from beamtree.fitting.run import WorkDirectory
            from beamtree.training.budget import explain_partial_epochs
            from beamtree.training.events import EpochCutShort, LogPrepared
            from beamtree.training.exclusive import claimed_folder
            from beamtree.training.interrupt import stop_requests
            from beamtree.training.strategies import Strategies
            from beamtree.updating.state import state_of_fit
        except ModuleNotFoundError as missing:
            raise InputError(f"Fitting needs the package {missing.name}: pip install 'beamtree[train]'.") from missing

        if cluster is not None and work_dir is None:
            raise InputError("A fit on a cluster needs a folder for checkpoints that all nodes share: give work_dir.")
        if items is None:
            self._refuse_settings_that_need_items()
        item_table = None if items is None else read_items(items, columns=self._given.log.item_columns)
        checked = self._read(interactions, cluster=cluster, work_dir=work_dir, resume=resume)
        user_table = None if users is None else read_users(users, columns=self._given.log.interaction_columns)
        if user_table is None and self._given.log.user_features:
            raise SettingsError("log.features names columns of a user table: give that too, users=... (--users).")
        prepared = prepare_log(checked, config=self._given, items=item_table, users=user_table)
        config, dataset = prepared.config, prepared.dataset
        work = None if work_dir is None else WorkDirectory(Path(work_dir), resume=resume)
        claim = nullcontext() if work is None else claimed_folder(work.directory, otherwise="give another work_dir")
        encoders: list[TrainedEstimator[NextItemModel]] = []
        with (
            _listening(listen, progress=progress) as say,
            claim,
            _computing(cluster, config=config) as backend,
            stop_requests() as should_stop,  # after Ray, which takes signals for itself
        ):
            say(LogPrepared(tuple(prepared.lines())))
            split = split_dataset(dataset, config=config)
            for held_out in (split.validation, split.test):
                reachable_labels(held_out, dataset.sequences, config=config)
            chosen = Strategies.of(config) if strategies is None else strategies
            for line in explain_partial_epochs(dataset, split, config=config, strategies=chosen):
                say(EpochCutShort(line))
            artefact = fit_model(
                dataset,
                split,
                config=config,
                work=work,
                listen=say,
                should_stop=should_stop,
                estimator_cache=None if estimator_cache is None else Path(estimator_cache),
                estimator=estimator,
                parts=self._parts,
                strategies=chosen,
                on_encoder=encoders.append,
                backend=backend,
            )
        artefact = replace(artefact, training={**artefact.training, "log": asdict(prepared.profile)})
        recommender, metrics = Recommender(artefact, parts=self._parts), None
        if len(split.test):
            search = BeamSearch(recommender.engine, config.retrieval.beam_width)
            metrics = evaluate(search, dataset, split.test, config=config)
            recommender = Recommender(replace(artefact, metrics={"test": dict(metrics)}), parts=self._parts)
        self._recommender, self._interactions, self._user_table = recommender, checked, user_table
        self._dataset, self._test_metrics, self._test_comparison = dataset, metrics, None
        self._state = state_of_fit(dataset, encoders)
        if cluster is not None and work_dir is not None:
            from beamtree.cluster.reading import forget_partitions

            forget_partitions(Path(work_dir))
        return self

    def update(
        self,
        interactions: InteractionLog | Source,
        items: Source | None = None,
        *,
        users: Source | None = None,
        force: bool = False,
        work_dir: str | Path | None = None,
        resume: bool = False,
        progress: bool | None = None,
        listen: "Listener | None" = None,
    ) -> Self:
        """Go on with the rows of a log that are newer than all that was learned from, new items and users included.

        items: a table that describes new items; users: one that describes users, new and old. force: take the update
        even if it does worse than the model as it is when both are asked what a tenth of the users did in the new
        rows; otherwise UpdateRefused, and nothing changes. A loaded model finds what it needs beside its folder, where
        `save` left it. The other arguments are those of `fit`.
        """
        from beamtree.training.events import ModelUpdated
        from beamtree.training.interrupt import stop_requests
        from beamtree.updating.encoder import Continuation
        from beamtree.updating.update import update_model

        artefact = self.recommender.artefact
        is_in_our_names = isinstance(items, pl.DataFrame) and ITEM_ID in items.columns
        columns = {} if is_in_our_names else self.config.log.item_columns
        item_table = None if items is None else read_new_items(items, like=artefact.item_table, columns=columns)
        directory = None if work_dir is None else Path(work_dir)
        with _listening(listen, progress=progress) as say, stop_requests() as should_stop:
            updated = update_model(
                artefact,
                self._update_state(),
                self._read(interactions),
                items=item_table,
                users=None if users is None else read_users(users, columns=self.config.log.interaction_columns),
                continuation=Continuation(say, should_stop, directory, resume=resume),
            )
            if not force:
                updated.refuse_if_worse()
            say(ModelUpdated(tuple(updated.lines())))
        self._recommender, self._state = Recommender(updated.artefact), updated.state
        self._interactions = self._user_table = None
        self._dataset = self._test_metrics = self._test_comparison = None
        return self

    def add_items(self, items: Source, *, interactions: InteractionLog | Source | None = None) -> Self:
        """Add the items of a table, without training: their ids, and any columns that the model was fitted with.

        A new item gets a place in the tree near the items that it is like, and the mean of their vectors: those beside
        it in `interactions`, the first ones with it; without them the popular ones of its category. Items that were
        removed come back. DataError for items that exist, unknown columns and other types than at the fit: nothing
        has changed then.
        """
        table = read_new_items(items, like=self.recommender.artefact.item_table, columns=self.config.log.item_columns)
        first = None if interactions is None else self._read(interactions)
        return self._changed(change_catalogue(self.recommender.artefact, add=table, interactions=first).artefact)

    def remove_items(self, items: Ids) -> Self:
        """Never recommend these items again; histories may still hold them. UnknownIdsError for unknown ids."""
        return self._changed(change_catalogue(self.recommender.artefact, remove=items).artefact)

    def _users(self, table: Source | None) -> pl.DataFrame | None:
        """A user table: as given, else the one that was fitted with."""
        return self._user_table if table is None else read_users(table, columns=self.config.log.interaction_columns)

    def _changed(self, artefact: Artefact) -> Self:
        self._recommender = Recommender(artefact, parts=self._parts)
        self._test_metrics = self._test_comparison = None
        return self

    def _update_state(self) -> "UpdateState":
        """What the model needs to go on: from the fit, or from beside the folder that it was loaded from."""
        from beamtree.updating.state import load_state

        if self._state is None:
            if self._folder is None:
                raise InputError("This model has no log to go on from: fit it, or load it from the folder it lies in.")
            self._state = load_state(self._folder, fingerprint=self.recommender.artefact.data_fingerprint)
        return self._state

    def recommend(
        self,
        users: Ids | None = None,
        *,
        interactions: InteractionLog | Source | None = None,
        user_table: Source | None = None,
        context: Values | None = None,
        k: int = DEFAULT_K,
        beam: int | None = None,
        exclude_seen: bool | None = None,
        allow: ItemFilter | None = None,
        exclude: Ids | None = None,
        fallback: Fallback = "popularity",
        explain: bool = False,
    ) -> pl.DataFrame:
        """The best k items for users of a log, all of them by default: columns user_id, item_id, score, rank.

        interactions: the log that holds the users' histories; by default the one that was fitted on. A loaded model
        carries no histories, so it must be given there. user_table: what is known of users, likewise. context: in which
        all of them ask, values by column. The other arguments are those of `recommend_histories`.
        """
        known = self._histories(interactions)
        options = RecommendOptions(
            k=k,
            beam=beam,
            exclude_seen=exclude_seen,
            allow=allow,
            exclude=exclude,
            fallback=fallback,
            explain=explain,
        )
        tables = recommend_users(
            self.recommender,
            known,
            users=users,
            options=options,
            user_table=self._users(user_table),
            context=context,
        )
        return pl.concat(tables)

    def recommend_histories(
        self,
        histories: Iterable[Ids],
        *,
        user_features: Sequence[Values] | None = None,
        context: Sequence[Values] | None = None,
        k: int = DEFAULT_K,
        beam: int | None = None,
        exclude_seen: bool | None = None,
        allow: ItemFilter | None = None,
        exclude: Ids | None = None,
        fallback: Fallback = "popularity",
        explain: bool = False,
    ) -> pl.DataFrame:
        """The best k items for bare histories, oldest item first: columns request, item_id, score, rank.

        user_features, context: for each history values by column, of those that the model was fitted with; what is left
        out is missing. beam: nodes kept per level, by default as the model's settings say. exclude_seen: leave out the
        items of the history, likewise. allow: only these items may be returned: ids, or a condition on the item table
        such as pl.col("category") == "Drama". exclude: none of these ids may. fallback: what a history without known
        items gets where no feature says anything either, popular ones (with null scores) or an error. explain: a column
        for each part of the score with what it gave, because_of, the ids of the history that speak for the item,
        strongest first, and reason_parts, the part of the score that each of these speaks through.
        """
        options = RecommendOptions(
            k=k,
            beam=beam,
            exclude_seen=exclude_seen,
            allow=allow,
            exclude=exclude,
            fallback=fallback,
            explain=explain,
        )
        return recommend_histories(
            self.recommender, histories, options=options, user_features=user_features, context=context
        )

    def explain(
        self, history: Ids, item: Id, *, user_features: Values | None = None, context: Values | None = None
    ) -> Explanation:
        """Where the score of an item comes from: the share of each part, and the items of the history behind it.

        The item need not be among the recommendations. user_features, context: values by column. UnknownIdsError where
        the model has never seen it.
        """
        return self.recommender.explain(history, [item], user_features=user_features, context=context)[0]

    def similar_items(self, items: Ids, *, k: int = 10, by: Similarity | None = None) -> pl.DataFrame:
        """The k items nearest to each item: columns item_id, similar_id, similarity, rank.

        by: "embedding", the cosine of the learned vectors, or "memory", ln(1 + how often it followed in the log); by
        default the first of them that the model has. UnknownIdsError for items that the model has never seen.
        """
        return similar_items(self.recommender, items, k=k, by=by)

    def score(
        self,
        pairs: Source | Iterable[tuple[Id, Id]],
        *,
        interactions: InteractionLog | Source | None = None,
        user_table: Source | None = None,
        context: Values | None = None,
    ) -> pl.DataFrame:
        """The score of each pair of a user and an item, in their order: columns user_id, item_id, score.

        pairs: (user, item) tuples, or a table or file with user_id and item_id. interactions: the log that holds the
        users' histories, user_table and context: as in `recommend`. The score is null where the model does not know the
        item, or neither an item of the user's history nor a feature of the request.
        """
        known = self._histories(interactions)
        table = read_pairs(pairs, columns=self.config.log.interaction_columns)
        return score_pairs(self.recommender, known, table, user_table=self._users(user_table), context=context)

    def score_histories(
        self,
        histories: Iterable[Ids],
        items: Iterable[Ids],
        *,
        user_features: Sequence[Values] | None = None,
        context: Sequence[Values] | None = None,
    ) -> pl.DataFrame:
        """The scores of chosen items for bare histories: columns request, item_id, score.

        items: a list of ids for each history; user_features, context: as in `recommend_histories`. The score is null
        where the model does not know the item, or neither an item of the history nor a feature.
        """
        return score_histories(self.recommender, histories, items, user_features=user_features, context=context)

    def evaluate(
        self,
        interactions: InteractionLog | Source | None = None,
        *,
        users: Source | None = None,
        held_out: Literal["test", "validation"] = "test",
        cutoffs: int | Iterable[int] = CUTOFFS,
        beam: int | None = None,
        exact: bool = True,
        baselines: Asked = "simple",
        estimator_cache: str | Path | None = None,
        listen: "Listener | None" = None,
    ) -> Comparison:
        """Metrics on the held-out users: by beam search, by an exact scan with the same model, and of baselines.

        interactions: the log that the model was fitted on, needed after loading. DataError when it is another one,
        because its held-out users would not be the ones that training never saw. users: the user table that the model
        was fitted with, likewise.
        held_out: which of the two groups of users. cutoffs: lengths of the lists that are counted; metrics are named
        by them, as in `found["beam"]["recall@20"]`.
        baselines: "simple" (those that take seconds), "all" (SASRec is trained too: minutes), "none", or a list of
        names and of baselines of your own (`beamtree.baselines.protocol`).
        estimator_cache: a folder where SASRec is found or kept; without one it is trained for this call. listen: called
        with each event of its training.
        """
        if held_out not in ("test", "validation"):
            raise InputError(f"Expected held_out as 'test' or 'validation', got {held_out!r}.")
        tops = checked_cutoffs(cutoffs)
        dataset = self._dataset if interactions is None else self.prepare(self._read(interactions), users=users)
        if dataset is None:
            raise InputError("A loaded model carries no log. Pass the one that it was fitted on.")
        if dataset.fingerprint != self.recommender.artefact.data_fingerprint:
            raise DataError(
                "This is not the log that the model was fitted on, so its held-out users cannot be found again. "
                "Give the same log with the same columns and filters, or fit on this one."
            )
        split = split_dataset(dataset, config=self.config)
        asked = split.test if held_out == "test" else split.validation
        if len(asked) == 0:
            raise DataError(
                f"The model was fitted with data.holdout = '{self.config.data.holdout}': nobody is held out."
            )
        chosen = choose_baselines(baselines, dataset, config=self.config)
        width = self.config.retrieval.beam_width if beam is None else beam
        own: dict[str, Answers] = {BEAM: BeamSearch(self.recommender.engine, width)}
        if exact:
            own[EXACT] = ExactScan(self.recommender.engine)
        known: dict[str, Metrics] = {}
        is_measured = held_out == "test" and width == self.config.retrieval.beam_width and tops == CUTOFFS
        if is_measured and self._test_metrics is not None:
            known[BEAM] = self._test_metrics
        model = {
            name: known[name] if name in known else evaluate(search, dataset, asked, config=self.config, cutoffs=tops)
            for name, search in own.items()
        }
        with TemporaryDirectory(prefix="beamtree-") as for_this_call:  # two baselines ask for the same SASRec
            budget = Budget(self.config, directory=Path(estimator_cache or for_this_call), listen=listen or _log_event)
            comparison = compare(
                model,
                chosen,
                dataset,
                split,
                users=asked,
                budget=budget,
                cutoffs=tops,
                left_out=reasons_left_out(baselines, dataset, config=self.config),
                beam=width,
            )
        if held_out == "test" and tops == CUTOFFS:
            self._test_comparison = comparison
        return comparison

    def held_out(self) -> HeldOut:
        """The test users of the log that was fitted on."""
        return split_dataset(self.dataset, config=self.config).test

    def save(self, directory: str | Path) -> None:
        """Write the model to a folder; one that was there before is replaced as a whole.

        A model card, README.md, is written into it, with the baselines of the last `evaluate` on test users. What
        `update` needs, the log among it, is kept beside the folder, in FOLDER.state: no server needs that.
        """
        from beamtree.updating.state import forget_others, save_state

        folder, artefact = Path(directory), self.recommender.artefact
        if self._state is not None:
            save_state(folder, self._state, fingerprint=artefact.data_fingerprint)
        save_artefact(folder, artefact)
        if self._state is not None:
            forget_others(folder, fingerprint=artefact.data_fingerprint)
        self.write_card(directory)

    def write_card(self, directory: str | Path) -> None:
        """Write the model card alone into the folder of a saved model, as after an `evaluate`."""
        write_model_card(Path(directory), self.recommender.artefact, comparison=self._test_comparison)

    @classmethod
    def load(cls, directory: str | Path, *, parts: "Mapping[str, MakePart] | None" = None) -> Self:
        """Read a saved model; ArtefactError when it is missing, damaged or of another version.

        parts: what makes those parts of its score that beamtree does not know, as when it was fitted.
        """
        recommender = Recommender.load(directory, parts=parts)
        model = cls(recommender.artefact.config, parts=parts)
        model._recommender, model._folder = recommender, Path(directory)
        return model

    def prepare(
        self, interactions: InteractionLog, items: pl.DataFrame | None = None, *, users: Source | None = None
    ) -> Dataset:
        """The log as training sees it, after filters and with dense ids; users: a user table."""
        if items is None and self._recommender is not None and self.config.data.catalogue == "items":
            items = self._recommender.artefact.fitted_items
        read = None if self._recommender is None else self._recommender.artefact.request_features
        return prepare_log(interactions, config=self.config, items=items, users=self._users(users), read=read).dataset

    @property
    def config(self) -> Config:
        """The settings: as they were given, and after `fit` or `load` with what the log decided."""
        return self._given if self._recommender is None else self._recommender.artefact.config

    @property
    def recommender(self) -> Recommender:
        """The part that answers; InputError before `fit` or `load`."""
        if self._recommender is None:
            raise InputError(
                "This model has not learned anything yet: call fit(log) or DeepTreeRetriever.load(folder)."
            )
        return self._recommender

    @property
    def dataset(self) -> Dataset:
        """The prepared log; InputError unless this object was fitted."""
        if self._dataset is None:
            raise InputError("A loaded model carries no log: only a freshly fitted one does.")
        return self._dataset

    def __repr__(self) -> str:
        """What it is and what it has learned, in one line."""
        if self._recommender is None:
            return f"DeepTreeRetriever(score {' + '.join((*self._given.model.parts, *self._parts))}; not fitted yet)"
        metrics = self._recommender.artefact.metrics
        measured = "".join(f", {users} recall@20 {found['recall@20']:.4f}" for users, found in metrics.items())
        return f"DeepTreeRetriever({self._recommender.summary}{measured})"

    def _histories(self, interactions: InteractionLog | Source | None) -> InteractionLog:
        """The log that holds the histories; InputError where there is none."""
        known = self._interactions if interactions is None else self._read(interactions)
        if known is None:
            raise InputError(
                "A loaded model carries no histories. Pass the log with interactions=..., or the histories themselves "
                "to recommend_histories or score_histories."
            )
        return known

    def _read(
        self,
        interactions: InteractionLog | Source,
        *,
        cluster: "Cluster | str | None" = None,
        work_dir: str | Path | None = None,
        resume: bool = False,
    ) -> InteractionLog:
        if isinstance(interactions, InteractionLog):
            return interactions
        if cluster is not None and work_dir is not None:
            from beamtree.cluster.reading import read_log_on_cluster

            return read_log_on_cluster(cluster, interactions, self.config.log, work_dir=Path(work_dir), resume=resume)
        return read_log(interactions, self.config.log)

    def _refuse_settings_that_need_items(self) -> None:
        """SettingsError, before any work, for settings that make no sense without an item table."""
        asked = {
            "data.catalogue": self.config.data.catalogue == "items",
            "tree.order": self.config.tree.order == "category",
        }
        needy = [name for name, needs_items in asked.items() if needs_items]
        if needy:
            raise SettingsError(
                f"{' and '.join(needy)} need an item table. Give one with --items (items=...), or choose other values."
            )


def _listening(listen: "Listener | None", *, progress: bool | None) -> "AbstractContextManager[Listener]":
    """Whoever is told of events: the given listener, a progress bar, or the log."""
    if listen is not None:
        return nullcontext(listen)
    from beamtree.progress import is_watched, progress_on_stderr

    if is_watched() if progress is None else progress:
        return progress_on_stderr()
    return nullcontext(_log_event)


@contextmanager
def _computing(cluster: "Cluster | str | None", *, config: Config) -> "Iterator[FitBackend]":
    """Where the long stages of a fit are computed: in this process, or on a cluster, connected while it lasts."""
    from beamtree.fitting.backend import LOCAL

    if cluster is None:
        yield LOCAL
        return
    from beamtree.cluster.connection import as_cluster, connected

    chosen = as_cluster(cluster)
    with connected(chosen):
        from beamtree.cluster.fitting import cluster_backend
        from beamtree.fitting.computation import learning_device

        yield cluster_backend(chosen, uses_gpu=learning_device(config).type == "cuda")


def load(directory: str | Path, *, parts: "Mapping[str, MakePart] | None" = None) -> DeepTreeRetriever:
    """Read a model that was saved with `DeepTreeRetriever.save` or `beamtree fit`."""
    return DeepTreeRetriever.load(directory, parts=parts)


def _log_event(event: "Event") -> None:
    from beamtree.training.events import StepDone

    if not isinstance(event, StepDone):
        log.info("%s", event)
