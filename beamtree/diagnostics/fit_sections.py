"""Sections on training: rounds and rectified labels."""

from beamtree.diagnostics.headlines import percent
from beamtree.diagnostics.plots import plot_labels, plot_training
from beamtree.diagnostics.report import Diagnostics
from beamtree.diagnostics.section import Section, Table, cell, optional_cell, share_cell, table_of


def training_section(diagnostics: Diagnostics) -> Section | None:
    """Validation and moved items by round, from the model folder; None if nothing was trained in rounds."""
    training = diagnostics.training
    if not training.rounds:
        return None
    relearned = [item for item in training.rounds if item.moved_share is not None]
    reading = f"{len(training.rounds)} round{'s' if len(training.rounds) != 1 else ''} of training."
    if training.validations:
        best = max(training.validations, key=lambda validation: validation.f)
        last = training.validations[-1]
        reading += f" Validation was best at step {best.step:,} with F@20 {best.f:.4f}, and ended at {last.f:.4f}."
    if relearned:
        first, last_move = relearned[0].moved_share, relearned[-1].moved_share
        reading += f" The first relearning moved {first:.0%} of the items, the last {last_move:.0%}."
        reading += f" Round {training.best_round} was kept."
    else:
        reading += " The tree was never relearned, so no item moved."
    return Section(
        key="training",
        title="Rounds: validation and moved items",
        meaning="Model and tree are trained alternately: validation should rise and then converge, fewer items "
        "should move from round to round, and each new placement should score higher than the old one.",
        reading=reading,
        plot=plot_training(training),
        tables=(
            table_of(
                training.rounds,
                {
                    "round": lambda item: str(item.number) + (" (kept)" if item.number == training.best_round else ""),
                    "steps": lambda item: f"{item.steps:,}",
                    "best F@20": lambda item: optional_cell(item.f, "{:.4f}"),
                    "items moved": lambda item: optional_cell(item.moved_share, "{:.1%}"),
                    "score before": lambda item: optional_cell(item.score_before, "{:,.0f}"),
                    "score after": lambda item: optional_cell(item.score_after, "{:,.0f}"),
                },
            ),
        ),
        definition="As recorded during the fit, on the validation users. Score: "
        "log-likelihood of the training targets' places in the first stage of the assignment, where all items have "
        "the same candidate nodes; compare it before and after within one round.",
        remedy="Validation falls during training: fewer epochs, more weight decay. It still rises at the end: "
        "more epochs. Nearly all items move every round: the model has not converged before the tree changes; give "
        "each round more epochs.",
    )


def labels_section(diagnostics: Diagnostics) -> Section | None:
    """Rectified labels that change under perturbed probabilities; None for a score without attention."""
    if diagnostics.labels is None:
        return None
    labels = diagnostics.labels
    small = [change for change in labels.changes if change.threshold <= labels.mean_probability]
    told = small[-1] if small else labels.changes[0]
    who = (
        "the encoder with this model's settings"
        if labels.estimator == "encoder"
        else "item popularity, as there is no trained encoder"
    )
    return Section(
        key="labels",
        title="Rectified labels under perturbed probabilities",
        meaning="Rectified labels depend on estimated probabilities; this is how many labels would change under small "
        "errors. It matters to training with dtr-t-rl only.",
        reading=f"Probabilities by {who}. Errors up to {told.threshold:.0e} change {percent(told.changed)} of the "
        f"labels. A typical probability is 1 / items = {labels.mean_probability:.1e}, and the targets' median is "
        f"{labels.median_target_probability:.1e}: larger errors replace the estimate rather than perturb it.",
        plot=plot_labels(labels),
        tables=(
            table_of(
                labels.changes,
                {
                    "largest error": lambda change: f"{change.threshold:.0e}",
                    "labels changed": lambda change: share_cell(change.changed),
                    "changed per target": lambda change: cell(change.changed_per_target),
                },
            ),
            Table(
                ("level", "positive labels", *(f"changed at {change.threshold:.0e}" for change in labels.changes)),
                tuple(
                    (
                        str(level.level),
                        f"{labels.positive[level.level - 1]:.1%}",
                        *(f"{change.by_level[level.level - 1]:.1%}" for change in labels.changes),
                    )
                    for level in diagnostics.levels
                ),
            ),
        ),
        definition=f"{labels.targets:,} held-out targets. Every probability is perturbed by noise "
        "from N(0, 1) clipped to ± the threshold, negative ones become 0, and each row is renormalised, as in the "
        "paper's appendix (which perturbs interaction counts instead of an estimator). A label is one target on one "
        "level, the leaves included.",
        remedy="Many labels flip at plausible errors: train a better estimator (estimator.width, "
        "estimator.epochs), or use dtr-t without rectified labels. Run again with --estimator encoder to use "
        "the encoder's probabilities.",
    )
