"""Names, what belongs to the simple ones, and what is said where a library is missing."""

from importlib.util import find_spec
from typing import Any

import pytest

from beamtree.baselines import registry
from beamtree.baselines.popularity import Popularity
from beamtree.baselines.registry import BASELINES, choose_baselines, reasons_left_out
from beamtree.errors import BaselineUnavailable, InputError
from tests.baselines.small_logs import budget, dataset_of, whole
from tests.small import small_config

ORDER = dataset_of([[0, 1], [1, 2]], num_items=3, times=[[0, 1], [0, 1]])
CLOCK = dataset_of([[0, 1], [1, 2]], num_items=3, times=[[0, 5], [3, 4]])
CONFIG = small_config()


def test_names_are_those_of_the_baselines_in_the_order_of_tables() -> None:
    assert list(BASELINES) == [
        "popularity",
        "trend-popularity",
        "personal-frequency",
        "item-to-item",
        "tfidf-knn",
        "ease",
        "ials",
        "sasrec",
        "sasrec-item-to-item",
        "gru4rec",
        "gru4rec-item-to-item",
    ]
    assert [name for name, entry in BASELINES.items() if entry.learns] == [
        "ials",
        "sasrec",
        "sasrec-item-to-item",
        "gru4rec",
        "gru4rec-item-to-item",
    ]


def test_simple_ones_depend_on_the_log_and_on_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def simple(dataset: Any, **retrieval: Any) -> list[str]:
        return list(choose_baselines("simple", dataset, config=small_config(retrieval=retrieval)))

    assert simple(ORDER) == ["popularity", "item-to-item", "tfidf-knn", "ease"]
    assert simple(CLOCK) == ["popularity", "trend-popularity", "item-to-item", "tfidf-knn", "ease"]
    assert simple(ORDER, exclude_seen=False)[1] == "personal-frequency"
    monkeypatch.setattr(registry, "QUICK_EASE_ITEMS", 2)
    monkeypatch.setattr(registry, "QUICK_KNN_INTERACTIONS", 3)
    assert simple(ORDER) == ["popularity", "item-to-item"]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("none", []),
        ("all", list(BASELINES)),
        ("ease, popularity", ["popularity", "ease"]),
        (["sasrec"], ["sasrec"]),
    ],
)
def test_what_is_asked_for(asked: Any, names: list[str]) -> None:
    assert list(choose_baselines(asked, ORDER, config=CONFIG)) == names


class Own(Popularity):
    name = "own"


def test_one_from_outside_stands_behind_those_that_are_known() -> None:
    own = Own()
    chosen = choose_baselines([own, "popularity"], ORDER, config=CONFIG)
    assert list(chosen) == ["popularity", "own"]
    assert chosen["own"].make() is own
    for taken in ([Popularity()], [own, Own()]):
        with pytest.raises(InputError, match=r"There is a baseline '(popularity|own)' already"):
            choose_baselines(taken, ORDER, config=CONFIG)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"got 'itemtoitem'\. Choose from popularity, .*, or none, simple"):
        choose_baselines("popularity,itemtoitem", ORDER, config=CONFIG)


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [("ials", "implicit", "baselines"), ("ease", "scipy", "baselines"), ("sasrec", "torch", "train")],
)
def test_a_missing_library_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, name: str, library: str, extra: str
) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda asked: None if asked == library else find_spec(asked))
    with pytest.raises(BaselineUnavailable, match=rf"^{name} needs {library}: pip install 'beamtree\[{extra}\]'\.$"):
        BASELINES[name].fit(ORDER, whole(ORDER), budget=budget())


def test_what_is_left_out_of_the_simple_ones_is_told_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "QUICK_EASE_ITEMS", 2)
    monkeypatch.setattr(registry, "QUICK_KNN_USERS", 1)
    reasons = reasons_left_out("simple", ORDER, config=CONFIG)
    assert reasons.keys() == BASELINES.keys() - {"popularity", "item-to-item"}
    assert "ease takes long for 3 items: use beamtree evaluate --baselines simple,ease" in reasons["ease"]
    assert "tfidf-knn takes long for 2 users with 4 interactions" in reasons["tfidf-knn"]
    assert "only order its rows" in reasons["trend-popularity"]
    assert "retrieval.exclude_seen=false" in reasons["personal-frequency"]
    assert "--baselines all (baselines='all')" in reasons["sasrec"] == reasons["ials"]
    with_ease = reasons_left_out("simple,ease", ORDER, config=CONFIG)
    assert with_ease.keys() == reasons.keys() - {"ease"}
    assert list(choose_baselines("simple,ease", ORDER, config=CONFIG)) == ["popularity", "item-to-item", "ease"]
    for asked in ("none", "all", "ease", [Own()]):
        assert reasons_left_out(asked, ORDER, config=CONFIG) == {}
