"""What people get, in words: accuracy beside baselines, example lists, coverage and popularity."""

from beamtree.diagnostics.accuracy import Accuracy, Bounded
from beamtree.diagnostics.example_lists import ExampleList
from beamtree.diagnostics.list_plots import plot_accuracy, plot_exposure
from beamtree.diagnostics.report import Diagnostics
from beamtree.diagnostics.section import Section, Table

HIT = "✓"


def accuracy_section(diagnostics: Diagnostics) -> Section:
    """The model beside simple baselines."""
    accuracy, subject = diagnostics.accuracy, diagnostics.subject
    reading = accuracy.verdict or "There is no baseline to compare with."
    missing = "".join(f"\nLeft out: {reason}" for reason in accuracy.left_out.values())
    return Section(
        key="accuracy",
        title="Accuracy beside simple baselines",
        meaning=f"What {accuracy.users:,} {subject.group} users went on to, counted in the 20 items that each system "
        "recommends them.",
        reading=reading + missing,
        plot=plot_accuracy(accuracy),
        shown=(_accuracy_table(accuracy),),
        tables=(),
        definition=f"{subject.protocol[:1].upper()}{subject.protocol[1:]}. Brackets hold the 95 % interval of a "
        "bootstrap over users. F is the harmonic mean of precision and recall of each user; hit rate is the share of "
        "users with at least one hit. The lead is the model's F@20 minus the baseline's, user by user: where its "
        "interval holds zero, the users asked do not tell the two apart. More users (--users) make it narrower.",
        remedy="Behind a baseline: train longer, or add the part that does the baseline's work (memory counts what "
        "item-to-item counts). Level with it: the interval may just be wide, so ask more users with --users.",
    )


def _accuracy_table(accuracy: Accuracy) -> Table:
    return Table(
        ("system", "F@20", "recall@20", "NDCG@20", "hit rate@20", "lead in F@20"),
        tuple(
            (
                system.name,
                _interval(system.metrics["f"]),
                f"{system.metrics['recall'].mean:.4f}",
                f"{system.metrics['ndcg'].mean:.4f}",
                f"{system.metrics['hit_rate'].mean:.1%}",
                "" if system.lead is None else _interval(system.lead, sign="+"),
            )
            for system in accuracy.systems
        ),
    )


def examples_section(diagnostics: Diagnostics) -> Section:
    """Lists of a few users, with titles."""
    examples = diagnostics.examples
    hits = sum(item.is_hit for example in examples for item in example.recommended)
    places = sum(len(example.recommended) for example in examples)
    return Section(
        key="examples",
        title="Example lists",
        meaning="What a few of these users did last, and what the model recommends next. Read them as a customer "
        "would: nothing in the numbers tells you whether a list looks sensible.",
        reading=f"{HIT} marks what the user went on to: {hits} of the {places} places shown here.",
        plot="",
        shown=tuple(_example_table(example) for example in examples),
        tables=(),
        definition=f"{len(examples)} users, evenly spread over those who were asked, whatever they got; the first "
        f"{max((len(example.recommended) for example in examples), default=0)} recommendations of each. Because of: "
        "the item of the history that adds most to the score.",
        remedy="Titles that are numbers: the model was fitted without an item table (--items). Everybody gets the "
        "same: look at coverage below.",
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
    lean = model.head_share - exposure.label_head_share
    towards = "neither way" if abs(lean) < 0.02 else "towards popular items" if lean > 0.0 else "away from them"
    shown = f"The lists show {model.shown_items:,} different items, {model.coverage:.1%} of the catalogue"
    if exposure.places < exposure.items:
        shown += f" and {model.shown_items / exposure.places:.1%} of what {exposure.places:,} places could show"
    return Section(
        key="exposure",
        title="Coverage and popularity",
        meaning="How much of the catalogue the lists show, and whether they lean towards what is popular anyway more "
        "than people do themselves.",
        reading=f"{shown}. The most popular tenth of the items takes {model.head_share:.0%} of the places and "
        f"{exposure.label_head_share:.0%} of what people chose: the model leans {towards}.",
        plot=plot_exposure(exposure),
        shown=(
            Table(
                ("", "items shown", "of the catalogue", "distinct lists", "popular tenth", "median popularity"),
                (
                    *(
                        (
                            system.name,
                            f"{system.shown_items:,}",
                            f"{system.coverage:.1%}",
                            f"{system.distinct_lists:.0%}",
                            f"{system.head_share:.0%}",
                            f"{system.median_popularity:,.0f}",
                        )
                        for system in exposure.systems
                    ),
                    (
                        "what people chose",
                        "",
                        "",
                        "",
                        f"{exposure.label_head_share:.0%}",
                        f"{exposure.label_median_popularity:,.0f}",
                    ),
                ),
            ),
        ),
        tables=(),
        definition="Popular tenth: the share of places that go to the tenth of the items with most training "
        "interactions. Median popularity: training interactions of the median place. Distinct lists: different lists "
        "over users, the order within a list ignored. Coverage grows with the number of users asked (--users).",
        remedy="Leans far towards popular items: lower what counted popularity weighs (memory.popularity), or look "
        "at whether a part of the score adds nothing but popularity.",
    )


def _interval(value: Bounded, *, sign: str = "") -> str:
    return f"{value.mean:{sign}.4f} [{value.low:{sign}.4f}, {value.high:{sign}.4f}]"
