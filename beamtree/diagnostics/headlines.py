"""The key figures, for the top of the page and for the terminal."""

from dataclasses import dataclass

from beamtree.diagnostics.averages import Average, Bounded
from beamtree.diagnostics.beams import BeamComparison, BeamResult
from beamtree.diagnostics.report import Diagnostics


@dataclass(frozen=True)
class Headline:
    """A key figure: name, value and remark."""

    name: str
    value: str
    remark: str


def headlines(diagnostics: Diagnostics) -> list[Headline]:
    """The key figures: accuracy, lead over the best baseline, coverage, popularity bias, latency."""
    accuracy, exposure, latency = diagnostics.accuracy, diagnostics.exposure, diagnostics.latency
    f, best = accuracy.model.metrics["f"], accuracy.best_baseline
    lines = [Headline("F@20", f"{f.mean:.4f}", f"95 % interval {f.low:.4f} to {f.high:.4f}")]
    if best is not None and best.lead is not None:
        lead = best.lead
        lines.append(
            Headline(
                f"{_standing(lead)} the best baseline",
                f"{round(lead.mean, 4) + 0.0:+.4f}",
                f"{lead.low:+.4f} to {lead.high:+.4f}; {best.name} {best.metrics['f'].mean:.4f}",
            )
        )
    beam = result_at(diagnostics, diagnostics.subject.beam_width)
    return [
        *lines,
        Headline("hit rate@20", f"{accuracy.model.metrics['hit_rate'].mean:.0%}", "of the users get a hit"),
        Headline(
            "catalogue coverage",
            f"{exposure.model.coverage:.1%}",
            f"{exposure.model.shown_items:,} of {exposure.items:,} items in {exposure.places:,} recommendations",
        ),
        Headline(
            "popular tenth",
            f"{exposure.model.head_share:.0%}",
            f"of the recommendations; {exposure.label_head_share:.0%} of the users' choices",
        ),
        Headline(
            f"search at beam {latency.own.width}",
            milliseconds(latency.own.median),
            f"finds {percent(beam.overlap)} of the exact top 20"
            + ("" if beam.width == latency.own.width else f" at beam {beam.width}"),
        ),
    ]


def _standing(lead: Bounded) -> str:
    if lead.holds_zero:
        return "level with"
    return "ahead of" if lead.mean > 0.0 else "behind"


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
    """A number with the given digits; an estimate that rounds to -0 is 0."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def milliseconds(value: float) -> str:
    """A time with the digits that matter: 0.19 ms, 1.5 ms, 177 ms."""
    return f"{value:.2f} ms" if value < 1.0 else f"{value:.1f} ms" if value < 10.0 else f"{value:,.0f} ms"


def percent(value: Average) -> str:
    """A share as a percentage with one digit."""
    return f"{value.mean:.1%}"
