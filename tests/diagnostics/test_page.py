"""The whole way: a model is fitted, looked into, and the page and its numbers are what they should be."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from beamtree.diagnostics.averages import Bounded
from beamtree.diagnostics.diagnose import diagnose, examine
from beamtree.diagnostics.estimators import NamedEstimator
from beamtree.diagnostics.headlines import headlines
from beamtree.diagnostics.page import GROUPS, render_page
from beamtree.diagnostics.report import Diagnostics
from beamtree.diagnostics.search_sections import sampling_section
from beamtree.errors import DataError
from beamtree.evaluation.answers import BeamSearch
from beamtree.evaluation.protocol import evaluate
from beamtree.model.estimator import PopularityEstimator
from beamtree.recommender import DeepTreeRetriever
from tests.small import small_config, two_group_log

LOG = two_group_log()


def fitted(*parts: str, **training: object) -> DeepTreeRetriever:
    estimator = {"width": 4, "layers": 1, "epochs": 1}
    settings = {"negatives": 3, "batch_size": 16, "epochs": 1, "learning_rate": 0.01, "warmup_steps": 0} | training
    model = {"parts": parts or ("attention", "memory")}
    return DeepTreeRetriever(small_config(model=model, training=settings, estimator=estimator)).fit(LOG)


def looked_into(model: DeepTreeRetriever, *, users: int = 100, seed: int = 0) -> Diagnostics:
    examined = examine(model, LOG, users=users, group=None, seed=seed)
    popularity = PopularityEstimator(examined.artefact.popularity)
    ticks = iter(range(10**9))
    return diagnose(examined, NamedEstimator("popularity", popularity), clock=lambda: next(ticks) / 1000)


@pytest.fixture(scope="module")
def model() -> DeepTreeRetriever:
    return fitted(method="dtr-t", rounds=2)


@pytest.fixture(scope="module")
def diagnostics(model: DeepTreeRetriever) -> Diagnostics:
    return looked_into(model)


class Page(HTMLParser):
    """Notes what a page is made of, and whether its elements are closed in order."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "data", "srcset", "poster"):
                self.references.append(str(value))
            if name == "id":
                self.ids.append(str(value))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(diagnostics: Diagnostics) -> None:
    text = render_page(diagnostics)
    page = Page(text)
    assert not page.open
    assert page.references
    assert all(reference.startswith("#") for reference in page.references)
    assert not re.search(r"https?:|url\((?!#)|@import|<script|<link", text)
    sections = sum(len(group) for _, group in GROUPS)
    assert page.tags.count("section") == sections == 11
    assert page.tags.count("svg") == sections, "the parts have two figures, the example lists none"
    assert page.tags.count("table") >= 8
    assert {reference[1:] for reference in page.references} <= set(page.ids)
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"#0[1-7]0[1-7]0[1-7]\b", text), "a stand-in colour was left in a figure"
    assert "nan" not in re.sub(r"<[^>]*>", " ", text).lower().split()


def test_raw_text_never_becomes_markup(diagnostics: Diagnostics) -> None:
    hostile = replace(diagnostics, subject=replace(diagnostics.subject, split="<b>&</b>", protocol="<script>"))
    page = render_page(hostile)
    assert "<script" not in page
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in page


def test_the_json_holds_every_number(diagnostics: Diagnostics) -> None:
    found = json.loads(diagnostics.to_json())
    assert (found["kind"], found["format_version"]) == ("beamtree diagnostics", 3)
    assert set(found) == {
        "kind",
        "format_version",
        "subject",
        "accuracy",
        "exposure",
        "examples",
        "latency",
        "levels",
        "sampling_start",
        "beams",
        "parts",
        "labels",
        "training",
    }
    height = found["subject"]["height"]
    assert [level["level"] for level in found["levels"]] == list(range(1, height + 1))
    for level in found["levels"]:
        assert set(level["loss"]) == {"mean", "standard_error"}
        assert level["chance"] == pytest.approx(np.log(level["nodes"]))
        assert (level["child_violations"] is None) == (level["level"] == height)
        assert level["exact"]
    assert [change["threshold"] for change in found["labels"]["changes"]] == [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2]
    assert [item["moved_share"] is None for item in found["training"]["rounds"]] == [False, True]
    assert found["subject"]["group"] == "test"
    assert (found["subject"]["parts"], found["subject"]["learned"]) == (["attention", "memory"], ["attention"])
    assert found["parts"]["parts"] == ["attention", "memory"]
    assert set(found["parts"]["groups"][0]["parts"][0]["f_gain"]) == {"mean", "low", "high"}


def test_the_numbers_are_those_of_the_evaluation(model: DeepTreeRetriever, diagnostics: Diagnostics) -> None:
    """All test users were asked, so F@20 at the beam's width is what `evaluate` says."""
    examined = examine(model, LOG, users=100, group=None, seed=0)
    result = diagnostics.beams.results[-1]
    search = BeamSearch(model.recommender.engine, result.width)
    metrics = evaluate(search, examined.dataset, examined.split.test, config=model.config, cutoffs=(20,))
    assert result.f.mean == pytest.approx(metrics["f@20"])


@pytest.mark.parametrize(("method", "drawn"), [("dtr-u", "uniformly"), ("dtr-t", "down the tree")])
def test_the_page_says_how_training_drew_negatives(method: str, drawn: str) -> None:
    section = sampling_section(looked_into(fitted(method=method)))
    assert section is not None
    assert section.reading.startswith(f"Training drew negatives {drawn}, ")


def test_the_same_seed_gives_the_same_page(model: DeepTreeRetriever, diagnostics: Diagnostics) -> None:
    assert render_page(looked_into(model)) == render_page(diagnostics)
    some = looked_into(model, users=3, seed=1)
    assert some.subject.users == 3
    assert some.levels != looked_into(model, users=3, seed=2).levels


def test_headlines_are_few_and_named(diagnostics: Diagnostics) -> None:
    lines = headlines(diagnostics)
    assert lines[0].name == "F@20"
    assert len(lines) == 6
    said = " ".join(f"{line.name} {line.value} {line.remark}" for line in lines)
    assert all(word in said for word in ("baseline", "hit rate", "catalogue coverage", "popular tenth", "ms"))
    assert not any(word in said for word in ("nats", "KL", "heap", "loss"))


@pytest.mark.parametrize(
    ("lead", "standing"),
    [
        (Bounded(-0.00001, -0.02, 0.02), "level with"),
        (Bounded(0.02, 0.01, 0.03), "ahead of"),
        (Bounded(-0.02, -0.03, -0.01), "behind"),
    ],
)
def test_a_headline_claims_a_lead_only_where_the_interval_does(
    diagnostics: Diagnostics, lead: Bounded, standing: str
) -> None:
    accuracy = diagnostics.accuracy
    systems = (accuracy.model, *(replace(system, lead=lead) for system in accuracy.systems[1:]))
    [line] = [
        line
        for line in headlines(replace(diagnostics, accuracy=replace(accuracy, systems=systems)))
        if "best baseline" in line.name
    ]
    assert line.name == f"{standing} the best baseline"
    assert line.value != "-0.0000"


def test_what_an_operator_asks_comes_first_and_theory_last(diagnostics: Diagnostics) -> None:
    keys = re.findall(r'<section id="(\w+)">', render_page(diagnostics))
    assert keys[:5] == ["accuracy", "examples", "exposure", "latency", "beams"]
    assert keys[-5:] == ["loss", "heap", "sampling", "training", "labels"]


def test_a_model_that_only_counts_has_a_report_without_theory() -> None:
    found = looked_into(fitted("memory"))
    keys = re.findall(r'<section id="(\w+)">', render_page(found))
    assert keys == ["accuracy", "examples", "exposure", "latency", "beams"]
    assert found.levels == ()
    assert json.loads(found.to_json())["levels"] == []


@pytest.mark.parametrize("parts", [("tower", "memory"), ("tower",), ("attention",), ("attention", "tower", "memory")])
def test_a_score_of_any_parts_has_its_sections(parts: tuple[str, ...]) -> None:
    """What attention is trained with is told of attention alone; a single part has nobody to be compared with."""
    found = looked_into(fitted(*parts))
    page = Page(render_page(found))
    trained_in_rounds = {"sampling", "training", "labels"}
    sections = {"loss", "beams", "heap"} | (trained_in_rounds if "attention" in parts else set())
    assert set(page.ids) & (trained_in_rounds | {"loss", "beams", "heap", "parts"}) == sections | (
        {"parts"} if len(parts) > 1 else set()
    )
    assert found.subject.learned == tuple(sorted(set(parts) - {"memory"}))
    assert (json.loads(found.to_json())["labels"] is None) == (found.labels is None) == ("attention" not in parts)
    assert 4 <= len(headlines(found)) <= 6


def test_another_log_is_refused_with_what_differs(model: DeepTreeRetriever) -> None:
    with pytest.raises(DataError, match=r"of its 22 items the model knows 20, and the model was fitted on 20"):
        examine(model, two_group_log(items_per_group=11), users=5, group=None, seed=0)
    with pytest.raises(DataError, match="other interactions"):
        examine(model, two_group_log(length=15), users=5, group=None, seed=0)
