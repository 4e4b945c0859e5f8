"""The section on latency: text, table and plot by beam width."""

from matplotlib.ticker import FuncFormatter, NullFormatter

from beamtree.diagnostics.headlines import milliseconds
from beamtree.diagnostics.latency import Latency
from beamtree.diagnostics.report import Diagnostics
from beamtree.diagnostics.section import Section, table_of
from beamtree.diagnostics.svg import FAINT, INK, SERIES, figure_style, panels, to_svg

TICK_RATIO = 1.8
NOTICEABLE = 1.2
"""The ratio of search times from which on the report calls one slower."""


def latency_section(diagnostics: Diagnostics) -> Section:
    """Milliseconds by beam width."""
    latency = diagnostics.latency
    own, narrow, wide = latency.own, latency.results[0], latency.results[-1]
    faster = latency.scan / own.median if own.median > 0.0 else 1.0
    beside_scan = (
        f"{faster:.3g} times as fast as scoring every item"
        if faster >= NOTICEABLE
        else "about as long as scoring every item: the catalogue is small"
    )
    range_of_widths = (
        f"A beam of {narrow.width} takes {milliseconds(narrow.median)} and scores {narrow.scored_nodes:,.0f} nodes, "
        f"one of {wide.width:,} {milliseconds(wide.median)} and {wide.scored_nodes:,.0f} nodes."
        if wide.median > NOTICEABLE * narrow.median
        else "The beam width makes no noticeable difference."
    )
    return Section(
        key="latency",
        title="Latency against beam width",
        meaning="The time of one request on this machine, without HTTP; the beam width trades speed for recall.",
        reading=f"At the model's beam of {own.width} a search takes {milliseconds(own.median)} (95 % of the "
        f"requests: at most {milliseconds(own.high)}), {beside_scan} ({milliseconds(latency.scan)}). {range_of_widths}",
        plot=plot_latency(latency),
        shown=(
            table_of(
                latency.results,
                {
                    "beam": lambda result: f"{result.width:,}" + (" (own)" if result is own else ""),
                    "median, ms": lambda result: f"{result.median:.2f}",
                    "95 %, ms": lambda result: f"{result.high:.2f}",
                    "nodes scored": lambda result: f"{result.scored_nodes:,.0f}",
                },
                ("every item", f"{latency.scan:.2f}", "", f"{diagnostics.beams.num_leaves:,}"),
            ),
        ),
        definition=f"{latency.requests:,} held-out users, one request at a time after a warm-up, k = 20, by the engine "
        "of `beamtree serve`. Nodes scored: on average and at most. Times depend on this machine and are the only "
        "numbers on this page that are not deterministic.",
        remedy="Too slow: narrow the beam (--beam, retrieval.beam_width) as far as the next section shows no "
        "loss, or leave out the most expensive part of the score.",
    )


def plot_latency(latency: Latency) -> str:
    """The median by beam width with a scan of every item as a line, and the nodes scored."""
    widths = [result.width for result in latency.results]
    ticks = widths[:1]
    for width in widths[1:]:
        if width >= TICK_RATIO * ticks[-1]:
            ticks.append(width)
    with figure_style():
        figure, [left, right] = panels(2)
        left.set_title("milliseconds per request")
        left.plot(widths, [result.median for result in latency.results], "o-", color=SERIES[0], label="beam search")
        left.axhline(latency.scan, color=INK, linestyle=":", linewidth=1.2, label="scoring every item")
        left.legend(loc="best")
        left.set_ylim(bottom=0)
        right.set_title("nodes scored")
        right.plot(widths, [result.scored_nodes for result in latency.results], "o-", color=SERIES[0])
        right.set_ylim(bottom=0)
        right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{width:,}" for width in ticks])
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel("beam width")
            axes.axvline(latency.own_width, color=FAINT, linewidth=5, zorder=0)
        return to_svg(figure, description="Milliseconds per request and nodes scored, by beam width")
