"""The few numbers to look at first, for the top of the page and for the terminal."""

from dataclasses import dataclass

from beamtree.diagnostics.averages import Average
from beamtree.diagnostics.beams import BeamComparison, BeamResult
from beamtree.diagnostics.report import Diagnostics


@dataclass(frozen=True)
class Headline:
    """A number, what it is, and a remark to judge it by."""

    name: str
    value: str
    remark: str


MOST_HEADLINES = 6


def headlines(diagnostics: Diagnostics) -> list[Headline]:
    """What was found, each in one line, the most telling first; as many as can be taken in at a glance."""
    subject, leaves = diagnostics.subject, diagnostics.levels[-1]
    beam = result_at(diagnostics, subject.beam_width)
    lines = [
        Headline(f"F@20 at beam {beam.width}", f"{beam.f.mean:.4f}", f"exact scan {diagnostics.beams.scan_f.mean:.4f}"),
        Headline("exact top 20 found", percent(beam.overlap), f"at beam {beam.width}"),
    ]
    if diagnostics.parts is not None:
        lines += [
            Headline(
                f"F@20 without {part.part}",
                f"{part.without.f.mean:.4f}",
                f"{-part.f_gain.mean:+.4f} ({-part.f_gain.high:+.4f} to {-part.f_gain.low:+.4f})",
            )
            for part in diagnostics.parts.everybody.parts
        ]
    lines.append(Headline("loss on the leaves", f"{leaves.loss.mean:.2f} nats", f"guessing {leaves.chance:.2f}"))
    attention = diagnostics.attention
    if attention is not None:
        lines.append(
            Headline(
                "KL on the leaves",
                f"{unsigned_zero(leaves.from_level.mean)} nats",
                f"top-down; uniform {unsigned_zero(leaves.uniform.mean)}",
            )
        )
    worst = worst_heap_level(diagnostics)
    if worst is not None:
        level, share = worst
        lines.append(
            Headline("max-heap violations", percent(share), f"of sibling pairs on level {level}, the worst searched")
        )
    if attention is not None:
        change = next(change for change in attention.labels.changes if change.threshold == 1e-4)
        by = f"at errors of 1e-4, by {attention.labels.estimator}"
        lines.append(Headline("labels that flip", percent(change.changed), by))
    return lines[:MOST_HEADLINES]


def result_at(diagnostics: Diagnostics, width: int) -> BeamResult:
    """The measured beam nearest to a width."""
    return min(diagnostics.beams.results, key=lambda result: abs(result.width - width))


def narrowest_enough(beams: BeamComparison) -> BeamResult | None:
    """The narrowest beam from which on no width loses more F@20 than its standard error or 1 % of the scan's."""
    enough: BeamResult | None = None
    for result in reversed(beams.results):
        if result.lost_f.mean > max(result.lost_f.standard_error or 0.0, 0.01 * beams.scan_f.mean):
            break
        enough = result
    return enough


def worst_heap_level(diagnostics: Diagnostics) -> tuple[int, Average] | None:
    """The level with most violations on the way to the top leaves, or against the best child where that is unknown.

    Levels that the beam keeps whole cannot lose anything and are left out, unless there are no others.
    """
    inner = [level for level in diagnostics.levels if level.child_violations is not None]
    searched = [level for level in inner if level.nodes > diagnostics.subject.beam_width]
    shares = [(level.level, level.path_violations or level.child_violations) for level in searched or inner]
    known = [(level, share) for level, share in shares if share is not None]
    return max(known, key=lambda entry: entry[1].mean, default=None)


def unsigned_zero(value: float, *, digits: int = 2) -> str:
    """A number with so many digits; an estimate that rounds to -0 is 0."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def percent(value: Average) -> str:
    """A share as a percentage with one digit."""
    return f"{value.mean:.1%}"
