"""From a saved model and its log to all diagnostics."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from beamtree.artefact import Artefact
from beamtree.data.dataset import Dataset
from beamtree.data.interactions import InteractionLog
from beamtree.data.split import Split
from beamtree.data.tables import Source
from beamtree.diagnostics.accuracy import measure_accuracy
from beamtree.diagnostics.averages import Average, average_over_histories
from beamtree.diagnostics.beams import beam_widths, compare_beams, num_scanned_users
from beamtree.diagnostics.contributions import measure_contributions, num_contribution_searches
from beamtree.diagnostics.estimators import NamedEstimator
from beamtree.diagnostics.example_lists import take_examples
from beamtree.diagnostics.exposure import measure_exposure
from beamtree.diagnostics.held_out import Group, SampledUsers, sample_held_out
from beamtree.diagnostics.label_changes import LabelChanges, measure_label_changes
from beamtree.diagnostics.latency import Clock, latency_widths, measure_latency
from beamtree.diagnostics.levels import LevelMeasures, LevelPlan, measure_levels
from beamtree.diagnostics.node_scores import learned_parts, scorer_of
from beamtree.diagnostics.ranked_lists import num_systems, rank_for_users
from beamtree.diagnostics.report import Diagnostics, LevelReport, Subject
from beamtree.diagnostics.rounds import read_training
from beamtree.errors import DataError, InputError
from beamtree.evaluation.protocol import describe_protocol, split_dataset
from beamtree.native.encoder_arrays import encoder_sizes
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.scorers import arrays_by_part
from beamtree.training.strategies import Strategies

Progress = Callable[[str, int, int], None]
"""Called with the current stage, the finished steps and their total."""


@dataclass(frozen=True, eq=False)
class Examined:
    """A model, the log that it was fitted on, and the sample of held-out users."""

    artefact: Artefact
    dataset: Dataset
    split: Split
    asked: SampledUsers
    seed: int

    @property
    def has_attention(self) -> bool:
        """Whether a network was trained in rounds, which rectified labels are about."""
        return bool(self.artefact.part("attention"))

    @property
    def history_length(self) -> int:
        """The number of latest items that the trained parts read."""
        lengths = [self.artefact.config.model.attention_history]
        if tower := self.artefact.part("tower"):
            lengths.append(encoder_sizes(tower, width=tower["node_table"].shape[1]).history_length)
        return max(lengths)


def examine(
    model: DeepTreeRetriever,
    interactions: InteractionLog,
    *,
    users: int,
    group: Group | None,
    seed: int,
    user_table: Source | None = None,
) -> Examined:
    """Recover the model's held-out users from its log; user_table: the one that it was fitted with.

    DataError for another log, whose held-out users may have been trained on, and if no users are held out.
    """
    artefact = model.recommender.artefact
    dataset = model.prepare(interactions, users=user_table)
    if dataset.fingerprint != artefact.data_fingerprint:
        raise DataError(_difference(artefact, dataset))
    split = split_dataset(dataset, config=artefact.config)
    return Examined(
        artefact, dataset, split, sample_held_out(dataset, split, group=group, count=users, seed=seed), seed
    )


def diagnose(
    examined: Examined,
    estimator: NamedEstimator | None,
    *,
    progress: Progress = lambda *_: None,
    clock: Clock = time.perf_counter,
) -> Diagnostics:
    """Measure everything; the same seed gives the same numbers, but for the times, which are the clock's.

    estimator: whose probabilities rectified labels rest on; a score without attention needs none, and InputError where
    one with attention has none.
    """
    artefact, asked = examined.artefact, examined.asked
    tree, config = artefact.tree, artefact.config
    ranked = rank_for_users(
        artefact,
        examined.dataset,
        examined.split,
        asked.users,
        advance=_counter(progress, "model and baselines", num_systems(examined.dataset, artefact)),
    )
    own_width = config.retrieval.beam_width
    latency = measure_latency(
        ranked.engine,
        ranked.requests,
        own_width=own_width,
        clock=clock,
        advance=_counter(progress, "latency", 1 + len(latency_widths(tree.num_leaves, own_width=own_width))),
    )
    plan = LevelPlan.of(tree, config=config)
    measures = _measure_histories(examined, plan, progress=progress) if learned_parts(artefact) else []
    depths = range(1, tree.height + 1) if measures else ()
    levels = tuple(_level_report(level, measures, plan=plan, asked=asked) for level in depths)
    searches = (1 + len(beam_widths(tree))) * num_scanned_users(tree, users=len(asked.users))
    beams = compare_beams(
        artefact, examined.dataset, asked.users, advance=_counter(progress, "beam search and exact scan", searches)
    )
    num_searches = num_contribution_searches(artefact, users=len(asked.users))
    parts = measure_contributions(
        artefact,
        examined.dataset,
        asked.users,
        seed=examined.seed,
        advance=_counter(progress, "parts of the score", num_searches),
    )
    return Diagnostics(
        subject=_subject(examined, plan),
        accuracy=measure_accuracy(ranked, num_items=tree.num_items, config=config, seed=examined.seed),
        exposure=measure_exposure(ranked, popularity=artefact.popularity),
        examples=take_examples(artefact, examined.dataset, ranked),
        latency=latency,
        levels=levels,
        sampling_start=plan.start,
        beams=beams,
        parts=parts,
        labels=_labels(examined, estimator, progress=progress) if examined.has_attention else None,
        training=read_training(artefact.training),
    )


def _labels(examined: Examined, estimator: NamedEstimator | None, *, progress: Progress) -> LabelChanges:
    if estimator is None:
        raise InputError("Rectified labels of attention rest on an estimator: give one, popularity for example.")
    return measure_label_changes(
        estimator.estimator,
        examined.asked,
        name=estimator.name,
        tree=examined.artefact.tree,
        seed=examined.seed,
        advance=_counter(progress, "rectified labels", len(examined.asked)),
    )


def _measure_histories(examined: Examined, plan: LevelPlan, *, progress: Progress) -> list[LevelMeasures]:
    scorer_of_history = scorer_of(examined.artefact)
    histories = examined.asked.histories(examined.history_length)
    generator = np.random.default_rng(examined.seed)
    advance = _counter(progress, "levels of the tree", len(histories))
    measures = []
    for history, target in zip(histories, examined.asked.targets, strict=True):
        measures.append(measure_levels(scorer_of_history(history), target=int(target), plan=plan, generator=generator))
        advance(1)
    return measures


def _level_report(level: int, measures: list[LevelMeasures], *, plan: LevelPlan, asked: SampledUsers) -> LevelReport:
    def share(name: str) -> Average | None:
        values = np.array([getattr(measure, name)[level - 1] for measure in measures])
        return average_over_histories(values, asked.user_row)

    def always(name: str) -> Average:
        found = share(name)
        assert found is not None, name
        return found

    num_nodes = len(plan.occupied.nodes[level])
    return LevelReport(
        level=level,
        nodes=num_nodes,
        exact=level <= plan.exact_depth,
        taken_whole=bool(plan.taken_whole[level - 1]),
        chance=float(np.log(num_nodes)),
        loss=always("loss"),
        uniform=always("uniform"),
        from_root=always("from_root"),
        from_level=always("from_level"),
        child_violations=share("child_violations"),
        leaf_violations=share("leaf_violations"),
        path_violations=share("path_violations"),
        lost_paths=share("lost_paths"),
    )


def _subject(examined: Examined, plan: LevelPlan) -> Subject:
    artefact, asked, config = examined.artefact, examined.asked, examined.artefact.config
    return Subject(
        model=artefact.version,
        parts=tuple(sorted(arrays_by_part(artefact.weights))),
        learned=learned_parts(artefact),
        method=config.training.method,
        sampler=Strategies.of(config).negatives.name,
        negatives=config.training.negatives,
        items=plan.tree.num_items,
        branching=plan.tree.branching,
        height=plan.tree.height,
        nodes=plan.tree.num_nodes,
        beam_width=config.retrieval.beam_width,
        group=asked.group,
        users=len(asked.users),
        available_users=asked.available,
        histories=len(asked),
        seed=examined.seed,
        split=examined.split.description,
        protocol=describe_protocol(config),
        exact_nodes=plan.exact_nodes,
        draws=plan.draws,
    )


def _difference(artefact: Artefact, dataset: Dataset) -> str:
    """The difference between the log and the one that the model was fitted on, as a message."""
    known = int((artefact.items.encode(dataset.items.ids) >= 0).sum()) if _same_type(artefact, dataset) else 0
    theirs, ours = len(dataset.items), len(artefact.items)
    remedy = "Give the log that the model was fitted on, with the same filters, or fit a model on this one."
    if known < max(theirs, ours):
        return (
            f"This log does not match the model: of its {theirs:,} items the model knows {known:,}, and the model was "
            f"fitted on {ours:,}. {remedy}"
        )
    return (
        "This log has the model's items but other interactions, so the users that were held out cannot be found again. "
        f"{remedy}"
    )


def _same_type(artefact: Artefact, dataset: Dataset) -> bool:
    return artefact.items.ids.dtype == dataset.items.ids.dtype


def _counter(progress: Progress, stage: str, total: int) -> Callable[[int], None]:
    """A callback for finished steps that reports their running total."""
    done = 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        progress(stage, done, total)

    return advance
