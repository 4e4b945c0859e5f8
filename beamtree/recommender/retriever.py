"""The public interface, `DeepTreeRetriever`: each method delegates to the package that does the work."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import polars as pl

from beamtree.artefact import Artefact
from beamtree.baselines.comparison import Comparison
from beamtree.baselines.registry import Asked
from beamtree.catalogue.change import change_catalogue
from beamtree.catalogue.item_rows import read_new_items
from beamtree.config import Config, PresetName
from beamtree.data.dataset import Dataset
from beamtree.data.interactions import InteractionLog, read_log
from beamtree.data.raw_ids import Ids
from beamtree.data.request_features import Values
from beamtree.data.split import HeldOut
from beamtree.data.tables import Source
from beamtree.data.users import read_users
from beamtree.data.vocabulary import Id
from beamtree.errors import InputError
from beamtree.evaluation.protocol import CUTOFFS, checked_cutoffs, split_dataset
from beamtree.model_card import write_model_card
from beamtree.recommender.evaluate import HeldOutGroup, evaluate_fitted
from beamtree.recommender.fitted import Fitted
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import DEFAULT_K, Explanation, Fallback, ItemFilter, RecommendOptions
from beamtree.retrieval.scorers import check_part_names
from beamtree.retrieval.scoring import read_pairs, score_histories, score_pairs
from beamtree.retrieval.similar import Similarity
from beamtree.retrieval.tables import recommend_histories, recommend_users, similar_items

if TYPE_CHECKING:
    from beamtree.cluster.connection import Cluster
    from beamtree.fitting.estimator import MakeEstimator
    from beamtree.model.part import MakePart
    from beamtree.training.events import Listener
    from beamtree.training.strategies import Strategies


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
        self._fitted: Fitted | None = None

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
            from beamtree.recommender.fit import fit_log
        except ModuleNotFoundError as missing:
            raise InputError(f"Fitting needs the package {missing.name}: pip install 'beamtree[train]'.") from missing
        self._fitted = fit_log(
            interactions,
            items,
            users=users,
            config=self._given,
            parts=self._parts,
            work_dir=work_dir,
            resume=resume,
            estimator_cache=estimator_cache,
            estimator=estimator,
            strategies=strategies,
            cluster=cluster,
            progress=progress,
            listen=listen,
        )
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
        from beamtree.recommender.listening import listening
        from beamtree.training.events import ModelUpdated
        from beamtree.training.interrupt import stop_requests
        from beamtree.updating.encoder import Continuation
        from beamtree.updating.update import update_model

        artefact, settings = self.recommender.artefact, self.config.log
        columns = settings.item_columns
        item_table = None if items is None else read_new_items(items, like=artefact.item_table, columns=columns)
        user_table = None if users is None else read_users(users, columns=settings.interaction_columns)
        state, directory = self.fitted.update_state(), None if work_dir is None else Path(work_dir)
        self._fitted = replace(self.fitted, state=state)
        with listening(listen, progress=progress) as say, stop_requests() as should_stop:
            going_on = Continuation(say, should_stop, directory, resume=resume)
            log = read_log(interactions, settings)
            updated = update_model(artefact, state, log, items=item_table, users=user_table, continuation=going_on)
            if not force:
                updated.refuse_if_worse()
            say(ModelUpdated(tuple(updated.lines())))
        self._fitted = Fitted(Recommender(updated.artefact), state=updated.state)
        return self

    def add_items(self, items: Source, *, interactions: InteractionLog | Source | None = None) -> Self:
        """Add the items of a table, without training: their ids, and any columns that the model was fitted with.

        A new item gets a place in the tree near the items that it is like, and the mean of their vectors: those beside
        it in `interactions`, the first ones with it; without them the popular ones of its category. Items that were
        removed come back. DataError for items that exist, unknown columns and other types than at the fit: nothing
        has changed then.
        """
        table = read_new_items(items, like=self.recommender.artefact.item_table, columns=self.config.log.item_columns)
        first = None if interactions is None else read_log(interactions, self.config.log)
        return self._changed(change_catalogue(self.recommender.artefact, add=table, interactions=first).artefact)

    def remove_items(self, items: Ids) -> Self:
        """Never recommend these items again; histories may still hold them. UnknownIdsError for unknown ids."""
        return self._changed(change_catalogue(self.recommender.artefact, remove=items).artefact)

    def _changed(self, artefact: Artefact) -> Self:
        self._fitted = self.fitted.answering_with(Recommender(artefact, parts=self._parts))
        return self

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
        options = RecommendOptions(
            k=k, beam=beam, exclude_seen=exclude_seen, allow=allow, exclude=exclude, fallback=fallback, explain=explain
        )
        tables = recommend_users(
            self.recommender,
            self.fitted.histories(interactions),
            users=users,
            options=options,
            user_table=self.fitted.users(user_table),
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
            k=k, beam=beam, exclude_seen=exclude_seen, allow=allow, exclude=exclude, fallback=fallback, explain=explain
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
        known, described = self.fitted.histories(interactions), self.fitted.users(user_table)
        table = read_pairs(pairs, columns=self.config.log.interaction_columns)
        return score_pairs(self.recommender, known, table, user_table=described, context=context)

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
        held_out: HeldOutGroup = "test",
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
        comparison = evaluate_fitted(
            self.fitted,
            interactions,
            users=users,
            held_out=held_out,
            cutoffs=cutoffs,
            beam=beam,
            exact=exact,
            baselines=baselines,
            estimator_cache=estimator_cache,
            listen=listen,
        )
        if held_out == "test" and checked_cutoffs(cutoffs) == CUTOFFS:
            self._fitted = replace(self.fitted, test_comparison=comparison)
        return comparison

    def held_out(self) -> HeldOut:
        """The test users of the log that was fitted on."""
        return split_dataset(self.dataset, config=self.config).test

    def save(self, directory: str | Path) -> None:
        """Write the model to a folder; one that was there before is replaced as a whole.

        A model card, README.md, is written into it, with the baselines of the last `evaluate` on test users. What
        `update` needs, the log among it, is kept beside the folder, in FOLDER.state: no server needs that.
        """
        self.fitted.save(Path(directory))
        self.write_card(directory)

    def write_card(self, directory: str | Path) -> None:
        """Write the model card alone into the folder of a saved model, as after an `evaluate`."""
        write_model_card(Path(directory), self.recommender.artefact, comparison=self.fitted.test_comparison)

    @classmethod
    def load(cls, directory: str | Path, *, parts: "Mapping[str, MakePart] | None" = None) -> Self:
        """Read a saved model; ArtefactError when it is missing, damaged or of another version.

        parts: what makes those parts of its score that beamtree does not know, as when it was fitted.
        """
        recommender = Recommender.load(directory, parts=parts)
        model = cls(recommender.artefact.config, parts=parts)
        model._fitted = Fitted(recommender, folder=Path(directory))
        return model

    def prepare(self, interactions: InteractionLog | Source, *, users: Source | None = None) -> Dataset:
        """The log of the fit as training saw it, after filters and with dense ids. users: its user table."""
        return self.fitted.prepare(interactions, users=users)

    @property
    def config(self) -> Config:
        """The settings: as they were given, and after `fit` or `load` with what the log decided."""
        return self._given if self._fitted is None else self._fitted.artefact.config

    @property
    def fitted(self) -> Fitted:
        """The fitted model with its data; InputError before `fit` or `load`."""
        if self._fitted is None:
            raise InputError(
                "This model has not learned anything yet: call fit(log) or DeepTreeRetriever.load(folder)."
            )
        return self._fitted

    @property
    def recommender(self) -> Recommender:
        """The recommender over the model; InputError before `fit` or `load`."""
        return self.fitted.recommender

    @property
    def dataset(self) -> Dataset:
        """The prepared log; InputError unless this object was fitted."""
        if self._fitted is None or self._fitted.dataset is None:
            raise InputError("A loaded model carries no log: only a freshly fitted one does.")
        return self._fitted.dataset

    def __repr__(self) -> str:
        """What it is and what it has learned, in one line."""
        if self._fitted is None:
            return f"DeepTreeRetriever(score {' + '.join((*self._given.model.parts, *self._parts))}; not fitted yet)"
        metrics = self.recommender.artefact.metrics
        measured = "".join(f", {users} recall@20 {found['recall@20']:.4f}" for users, found in metrics.items())
        return f"DeepTreeRetriever({self.recommender.summary}{measured})"


def load(directory: str | Path, *, parts: "Mapping[str, MakePart] | None" = None) -> DeepTreeRetriever:
    """Read a model that was saved with `DeepTreeRetriever.save` or `beamtree fit`."""
    return DeepTreeRetriever.load(directory, parts=parts)
