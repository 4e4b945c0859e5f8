"""Sections on the recommendations: accuracy beside baselines, example lists, coverage and popularity."""

import numpy as np
from matplotlib.ticker import PercentFormatter

from beamtree.diagnostics.accuracy import Accuracy
from beamtree.diagnostics.averages import Bounded
from beamtree.diagnostics.example_lists import ExampleList
from beamtree.diagnostics.exposure import BINS, Exposure
from beamtree.diagnostics.report import Diagnostics
from beamtree.diagnostics.section import Section, Table, table_of
from beamtree.diagnostics.svg import FAINT, INK, SERIES, figure_style, panels, to_svg

HIT = "✓"


def accuracy_section(diagnostics: Diagnostics) -> Section:
    """The model beside simple baselines."""
    accuracy, subject = diagnostics.accuracy, diagnostics.subject
    reading = accuracy.verdict or "There is no baseline to compare with."
    missing = "".join(f"\nLeft out: {reason}" for reason in accuracy.left_out.values())
    return Section(
        key="accuracy",
        title="Accuracy beside simple baselines",
        meaning=f"Hits among the top 20 recommendations of each system, for {accuracy.users:,} {subject.group} users.",
        reading=reading + missing,
        plot=plot_accuracy(accuracy),
        shown=(_accuracy_table(accuracy),),
        definition=f"{subject.protocol[:1].upper()}{subject.protocol[1:]}. Brackets are 95 % "
        "bootstrap intervals over users. F is the harmonic mean of precision and recall of each user; hit rate is "
        "the share of users with at least one hit. The lead is the paired difference of F@20: if its "
        "interval includes zero, the difference is not significant. More users (--max-users) make it narrower.",
        remedy="Behind a baseline: train longer, or add the part with the baseline's signal (memory has the "
        "item-to-item counts). Level with it: the interval may be wide, so use more users (--max-users).",
    )


def _accuracy_table(accuracy: Accuracy) -> Table:
    return table_of(
        accuracy.systems,
        {
            "system": lambda system: system.name,
            "F@20": lambda system: _interval(system.metrics["f"]),
            "recall@20": lambda system: f"{system.metrics['recall'].mean:.4f}",
            "NDCG@20": lambda system: f"{system.metrics['ndcg'].mean:.4f}",
            "hit rate@20": lambda system: f"{system.metrics['hit_rate'].mean:.1%}",
            "lead in F@20": lambda system: "" if system.lead is None else _interval(system.lead, sign="+"),
        },
    )


def examples_section(diagnostics: Diagnostics) -> Section:
    """Lists of a few users, with titles."""
    examples = diagnostics.examples
    hits = sum(item.is_hit for example in examples for item in example.recommended)
    places = sum(len(example.recommended) for example in examples)
    return Section(
        key="examples",
        title="Example lists",
        meaning="The latest items of a few users, and their recommendations. Read them as a customer "
        "would: metrics do not tell you whether a list looks sensible.",
        reading=f"{HIT} marks hits: {hits} of the {places} recommendations shown here.",
        shown=tuple(_example_table(example) for example in examples),
        definition=f"{len(examples)} users, evenly spread over the sample, not selected by result; the first "
        f"{max((len(example.recommended) for example in examples), default=0)} recommendations of each. Because of: "
        "the item of the history that contributes most to the score.",
        remedy="Titles that are numbers: the model was fitted without an item table (--items). The same list for all "
        "users: see coverage below.",
    )


def _example_table(example: ExampleList) -> Table:
    rows = tuple(
        (f"{rank}. {item.title} {HIT if item.is_hit else ''}".rstrip(), item.because_of or "")
        for rank, item in enumerate(example.recommended, start=1)
    )
    latest = " · ".join(example.history)
    return Table(
        ("recommended", "because of"),
        rows,
        texts=(0, 1),
        caption=f"User {example.user}, {example.history_length:,} items so far and {example.labels:,} later. "
        f"Latest: {latest}",
    )


def exposure_section(diagnostics: Diagnostics) -> Section:
    """Coverage and popularity bias."""
    exposure = diagnostics.exposure
    model = exposure.model
    lean, chosen_head = model.head_share - exposure.label_head_share, f"{exposure.label_head_share:.0%}"
    bias = "no" if abs(lean) < 0.02 else "a positive" if lean > 0.0 else "a negative"
    shown = f"The lists contain {model.shown_items:,} distinct items, {model.coverage:.1%} of the catalogue"
    if exposure.places < exposure.items:
        shown_share = model.shown_items / exposure.places
        shown += f" and {shown_share:.1%} of the maximum for {exposure.places:,} recommendations"
    return Section(
        key="exposure",
        title="Coverage and popularity",
        meaning="The share of the catalogue that is recommended, and the popularity bias relative to the users' own "
        "choices.",
        reading=f"{shown}. The most popular tenth of the items has {model.head_share:.0%} of the recommendations and "
        f"{chosen_head} of the users' choices: the model has {bias} popularity bias.",
        plot=plot_exposure(exposure),
        shown=(
            table_of(
                exposure.systems,
                {
                    "": lambda system: system.name,
                    "distinct items": lambda system: f"{system.shown_items:,}",
                    "coverage": lambda system: f"{system.coverage:.1%}",
                    "distinct lists": lambda system: f"{system.distinct_lists:.0%}",
                    "popular tenth": lambda system: f"{system.head_share:.0%}",
                    "median popularity": lambda system: f"{system.median_popularity:,.0f}",
                },
                ("users' choices", "", "", "", chosen_head, f"{exposure.label_median_popularity:,.0f}"),
            ),
        ),
        definition="Popular tenth: the share of recommendations from the tenth of the items with most training "
        "interactions. Median popularity: training interactions of the median recommendation. Distinct lists: lists "
        "that differ between users, whatever their order. Coverage grows with the number of users (--max-users).",
        remedy="A strong popularity bias: lower the weight of popularity (memory.popularity), or check "
        "whether a part of the score adds nothing but popularity.",
    )


def _interval(value: Bounded, *, sign: str = "") -> str:
    return f"{value.mean:{sign}.4f} [{value.low:{sign}.4f}, {value.high:{sign}.4f}]"


def plot_accuracy(accuracy: Accuracy) -> str:
    """F@20 of every system with its interval, the model on top."""
    values = [system.metrics["f"] for system in accuracy.systems]
    places = np.arange(len(values))[::-1]
    with figure_style():
        figure, [axes] = panels(height=0.7 + 0.34 * len(values))
        for place, value, system in zip(places, values, accuracy.systems, strict=True):
            colour = SERIES[0] if system.lead is None else INK
            axes.plot([value.low, value.high], [place, place], color=colour, linewidth=2.4)
            axes.plot([value.mean], [place], "o", color=colour, markersize=6)
        axes.axvline(values[0].mean, color=FAINT, linewidth=1.0, zorder=0)
        axes.set_yticks(places, [system.name for system in accuracy.systems])
        axes.set_ylim(-0.6, len(values) - 0.4)
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.set_xlabel("F@20 and its 95 % interval")
        return to_svg(figure, description="F at 20 of the model and of its baselines, with intervals")


def plot_exposure(exposure: Exposure) -> str:
    """Share of recommendations and of labels by tenths of the catalogue, the most popular first."""
    places = np.arange(1, BINS + 1)
    with figure_style():
        figure, [axes] = panels(height=2.6)
        axes.bar(places - 0.19, exposure.model_bins, width=0.36, color=SERIES[0], label="recommended by this model")
        axes.bar(places + 0.19, exposure.label_bins, width=0.36, color=SERIES[1], label="chosen by people")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xticks(places, ["most\npopular", *(str(place) for place in places[1:-1]), "least\npopular"])
        axes.set_xlabel("tenths of the catalogue")
        axes.legend(loc="upper right")
        return to_svg(figure, description="Share of recommendations and of choices, by popularity of the items")
