"""How the model was learned and what that rests on: rounds, rectified labels, the bound, in words."""

from beamtree.diagnostics.headlines import percent
from beamtree.diagnostics.plots import TERMS, compact, plot_bound, plot_labels, plot_training
from beamtree.diagnostics.report import Diagnostics
from beamtree.diagnostics.section import Section, Table, cell, optional_cell, share_cell


def training_section(diagnostics: Diagnostics) -> Section | None:
    """What the model folder remembers of the fit; None where nothing was trained in rounds."""
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
        title="Rounds: validation, and items that moved",
        meaning="Model and tree are learned in turn: validation should rise and then settle, moves should become "
        "fewer, and each new placement should score higher than the old one.",
        reading=reading,
        plot=plot_training(training),
        tables=(
            Table(
                ("round", "steps", "best F@20", "items moved", "score before", "score after"),
                tuple(
                    (
                        str(item.number) + (" (kept)" if item.number == training.best_round else ""),
                        f"{item.steps:,}",
                        optional_cell(item.f, "{:.4f}"),
                        optional_cell(item.moved_share, "{:.1%}"),
                        optional_cell(item.score_before, "{:,.0f}"),
                        optional_cell(item.score_after, "{:,.0f}"),
                    )
                    for item in training.rounds
                ),
            ),
        ),
        definition="As recorded while the model was fitted, on the validation users that each validation asks. Score: "
        "log-likelihood of the training targets' places in the first stage of the assignment, where all items choose "
        "among the same nodes; it compares before and after within one round.",
        remedy="Validation falls while training goes on: fewer epochs, more weight decay. It still rises at the end: "
        "more epochs. Nearly all items move every round: the model has not settled before the tree changes; give each "
        "round more epochs.",
    )


def labels_section(diagnostics: Diagnostics) -> Section | None:
    """How many rectified labels change under wrong probabilities; None for a score without attention."""
    if diagnostics.attention is None:
        return None
    labels = diagnostics.attention.labels
    small = [change for change in labels.changes if change.threshold <= labels.mean_probability]
    told = small[-1] if small else labels.changes[0]
    who = (
        "the encoder with this model's settings"
        if labels.estimator == "encoder"
        else "item popularity, as no trained encoder is kept"
    )
    return Section(
        key="labels",
        title="Rectified labels under wrong probabilities",
        meaning="Rectified labels rest on estimated probabilities; this is how many labels would change if these were "
        "a little wrong. It matters to training with dtr-t-rl only.",
        reading=f"Probabilities by {who}. Errors up to {told.threshold:.0e} change {percent(told.changed)} of the "
        f"labels. A typical probability is 1 / items = {labels.mean_probability:.1e}, and the targets' median is "
        f"{labels.median_target_probability:.1e}: errors beyond that replace the estimate rather than disturb it.",
        plot=plot_labels(labels),
        tables=(
            Table(
                ("largest error", "labels changed", "changed per target"),
                tuple(
                    (f"{change.threshold:.0e}", share_cell(change.changed), cell(change.changed_per_target))
                    for change in labels.changes
                ),
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
        definition=f"{labels.targets:,} held-out targets, rule '{labels.rule}'. Every probability is shifted by noise "
        "from N(0, 1) clipped to ± the threshold, negative ones become 0, and each row is normalised anew, as in the "
        "paper's appendix (which perturbs interaction counts instead of an estimator). A label is one target on one "
        "level, the leaves included.",
        remedy="Many labels flip at errors that your estimator may well have: train a better one (estimator.width, "
        "estimator.epochs), or use dtr-t without rectified labels. Almost no positive labels on upper levels: "
        "rectification = child keeps more. Run again with --estimator encoder to ask the encoder itself.",
    )


def bound_section(diagnostics: Diagnostics) -> Section | None:
    """The terms of the generalisation bound; None for a score without attention."""
    if diagnostics.attention is None:
        return None
    bound, labels = diagnostics.attention.bound, diagnostics.attention.labels
    norms, constants = bound.norms, bound.constants
    rows = [(TERMS[name], compact(getattr(bound, name)), _TERM_FORMULAS[name]) for name in TERMS]
    symbols = [
        ("m", f"{constants.instances:,}", "training instances"),
        ("τ", compact(bound.tau), "√((2B-1)·items / (B-1))"),
        ("B₀", compact(norms.node_norm), "longest node vector, 2-norm"),
        ("Bₐ", compact(norms.item_norm), "longest history vector, 2-norm"),
        ("B₁", compact(bound.layer_norm), "largest norm of the MLP's layers"),
        ("B₂", compact(bound.attention_norm), "largest norm of the attention's layers"),
        ("c", compact(norms.lipschitz), "Lipschitz constant of the activations"),
        ("K", str(norms.history_length), "history positions"),
        ("B_M", compact(constants.largest_score), "largest score met on held-out users"),
        ("δ", str(constants.delta), "the bound holds with probability 1 - δ"),
    ]
    layers = [
        (
            layer.name,
            f"{layer.shape[0]} x {layer.shape[1]}",
            compact(layer.largest_row),
            compact(layer.largest_column),
            compact(layer.spectral),
        )
        for layer in (*norms.attention, *norms.layers)
    ]
    rectified = (
        f"Labels: g(ε) = {constants.label_discrepancy:.3f} flips per target at an assumed ε of "
        f"{constants.assumed_error:.0e}, by {labels.estimator}. "
        if constants.label_discrepancy is not None
        else "This model was trained without rectified labels, so the second term is 0. "
    )
    return Section(
        key="bound",
        title="Terms of the generalisation bound",
        meaning="The paper's worst-case bound on the expected training loss, term by term. It says nothing about "
        "accuracy: it holds for the worst network with weights of this size and is looser than the truth by many "
        "orders of magnitude. Use it to compare terms of two models on the same data.",
        reading=f"What training moves directly: loss {compact(bound.empirical_loss)}, sampler "
        f"{compact(bound.divergence)}, finite sample {compact(bound.concentration)} nats. The sum with the size of the "
        "weights is not shown: it is vacuous, as such bounds are.",
        plot=plot_bound(bound),
        tables=(
            Table(("term", "nats", "formula"), tuple(rows), texts=(0, 2)),
            Table(("symbol", "value", "what it is"), tuple(symbols), texts=(0, 2)),
            Table(("layer", "shape", "largest row sum", "largest column sum", "spectral norm"), tuple(layers)),
        ),
        definition="Theorem 4, summed over levels 1 to H. "
        + rectified
        + "Loss: sampled softmax as in training, on 200 training instances. B₁ and B₂ are the largest row sums of "
        "absolute values, which is what the steps of the proof need; with the largest column sums, the induced 1-norm "
        f"of the theorem's notation, the weights' term is {compact(bound.complexity_induced_norm)}. The theorem knows "
        f"no {' and no '.join(norms.unbounded)}; they are left out.",
        remedy="Nothing follows from the total. If one layer's norm dwarfs the others or grows from fit to fit: more "
        "weight decay (training.weight_decay) or layer normalisation. A larger branching makes τ smaller.",
    )


_TERM_FORMULAS = {
    "empirical_loss": "mean of Σⱼ L̂ⱼ",
    "estimation": "g(ε)·(2B_M + ln items)",
    "divergence": "Σⱼ KL(Qⱼ||Pⱼ) over sampled levels",
    "concentration": "(8 ln τ + 8·H·B_M)·√(2 ln(4/δ)/m)",
    "complexity": "8τ²·c³·B₁⁴·(B₀ + K·c²B₂²Bₐ² + K·c²B₀B₂²(Bₐ²+Bₐ)·τ)/√m",
}
