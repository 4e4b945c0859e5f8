"""The paper's experiments that need variants outside the product."""

from types import MappingProxyType

from beamtree.compare.reproduce.catalogue import OUTSIDE, SWEPT_INSTANCES
from beamtree.compare.reproduce.experiment import Evidence, Experiment, Part, Variant
from beamtree.compare.reproduce.paper import LOGS, published_label_changes
from beamtree.compare.reproduce.parts import sweep_part
from beamtree.compare.reproduce.plots import plot_lines
from beamtree.diagnostics.section import Table
from research.perturbation import THRESHOLDS

SYSTEMS_MODULE = "research.systems"
ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


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


_EXPERIMENTS = (
    Experiment(
        OUTSIDE["adaptive"],
        tuple(Variant("dtr-u-adaptive", None, {"alpha": alpha}, f"alpha {alpha:g}", alpha) for alpha in ALPHAS),
        lambda evidence: [sweep_part(evidence, axis="alpha")],
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
