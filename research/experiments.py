"""The paper's experiments that need variants outside the product."""

from types import MappingProxyType

from beamtree.compare.reproduce.catalogue import OUTSIDE, SWEPT_INSTANCES, UPDATED_INSTANCES
from beamtree.compare.reproduce.experiment import Evidence, Experiment, Part, Variant
from beamtree.compare.reproduce.paper import LOGS, published_label_changes
from beamtree.compare.reproduce.parts import accuracy_part, plot_lines, rounds_part, sweep_part
from beamtree.diagnostics.section import Table
from research.bounded import ASSUMED_ERROR
from research.perturbation import THRESHOLDS

SYSTEMS_MODULE = "research.systems"
ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
DRAWS = (
    {"start": "level"},
    {"start": "root"},
    {"start": "every"},
    {"correction": "published"},
    {"mode": "training"},
)
LABELS = ("subtree", "child", "normalised", "soft")
PLACEMENTS = (
    ("residents", "stay"),
    ("auction", "travel"),
    ("regret", "travel"),
    ("score", "travel"),
    ("auction", "rebuild"),
)
TERMS = {
    "empirical_loss": "loss on training instances",
    "estimation": f"wrong labels, at errors of {ASSUMED_ERROR:.0e}",
    "divergence": "sampler, sum of KL",
    "concentration": "finite sample",
    "complexity": "size of the weights",
}
"""The terms of the bound, in the order of its formula."""


def perturbation_part(evidence: Evidence) -> Part:
    """The share of labels that change, by threshold, as a mean over seeds; the paper's beside."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for _, row in evidence.rows():
        found = [result["findings"]["changed"] for result in row.results]
        means = [sum(values) / len(values) for values in zip(*found, strict=True)]
        lines["here"] = list(zip(THRESHOLDS, means, strict=True))
    if evidence.with_paper and lines:
        for log in LOGS:
            lines[f"paper, {log}"] = list(zip(THRESHOLDS, published_label_changes()[log], strict=True))
    rows = tuple(
        (f"{threshold:.0e}", *(f"{points[place][1]:.4f}" for points in lines.values()))
        for place, threshold in enumerate(THRESHOLDS)
        if lines
    )
    return Part(
        "perturbation",
        "Labels that change",
        "The share of rectified labels that change where every probability is shifted by at most the threshold.",
        [Table(("threshold", *lines), rows)],
        plot_lines(lines, x="threshold (log)", y="share of labels", log_x=True),
    )


def bound_part(evidence: Evidence) -> Part:
    """Each term in nats, as a mean over seeds."""
    rows = []
    for _, row in evidence.rows():
        found = [result["findings"] for result in row.results]
        rows = [(text, f"{sum(each[name] for each in found) / len(found):.3g}") for name, text in TERMS.items()]
    return Part(
        "bound",
        "Terms of the generalisation bound",
        "The paper's worst-case bound on the expected training loss. It says nothing about accuracy: it holds for the "
        "worst network with weights of this size, and is vacuous, as such bounds are.",
        [Table(("term", "nats"), tuple(rows), texts=(0,))],
    )


_EXPERIMENTS = (
    Experiment(
        OUTSIDE["adaptive"],
        tuple(Variant("dtr-u-adaptive", None, {"alpha": alpha}, f"alpha {alpha:g}", alpha) for alpha in ALPHAS),
        lambda evidence: [sweep_part(evidence, axis="alpha")],
        instances=SWEPT_INSTANCES,
        systems_module=SYSTEMS_MODULE,
    ),
    Experiment(
        OUTSIDE["draws"],
        tuple(
            Variant("dtr-t-drawn", None, changes, ", ".join(f"{name} {value}" for name, value in changes.items()))
            for changes in DRAWS
        ),
        lambda evidence: [accuracy_part(evidence)],
        instances=SWEPT_INSTANCES,
        systems_module=SYSTEMS_MODULE,
    ),
    Experiment(
        OUTSIDE["labels"],
        tuple(Variant("dtr-t-rl-labelled", None, {"labels": labels}, labels) for labels in LABELS),
        lambda evidence: [accuracy_part(evidence)],
        instances=SWEPT_INSTANCES,
        systems_module=SYSTEMS_MODULE,
    ),
    Experiment(
        OUTSIDE["placement"],
        tuple(
            Variant("dtr-t-placed", None, {"assign": assign, "rows": rows}, f"{assign}, rows {rows}")
            for assign, rows in PLACEMENTS
        ),
        lambda evidence: [accuracy_part(evidence), rounds_part(evidence)],
        instances=UPDATED_INSTANCES,
        systems_module=SYSTEMS_MODULE,
    ),
    Experiment(
        OUTSIDE["bound"],
        (Variant("dtr-t-rl-bounded"),),
        lambda evidence: [bound_part(evidence)],
        instances=SWEPT_INSTANCES,
        systems_module=SYSTEMS_MODULE,
    ),
    Experiment(
        OUTSIDE["perturbation"],
        (Variant("dtr-t-perturbed"),),
        lambda evidence: [perturbation_part(evidence)],
        instances=SWEPT_INSTANCES,
        systems_module=SYSTEMS_MODULE,
    ),
)

EXPERIMENTS = MappingProxyType({experiment.heading.name: experiment for experiment in _EXPERIMENTS})
"""By name."""
