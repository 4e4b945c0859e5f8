"""The benchmarks of the score's cost run on tiny catalogues and report every figure that they promise."""

import json
import sys

import numpy as np
import pytest

from beamtree import native
from benchmarks import frontier, retrieval
from benchmarks.catalogue import Catalogue
from benchmarks.default_training import PRESETS, measure_default_training
from benchmarks.estimator import Shape
from benchmarks.score_cost import measure_score_cost

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")


def test_the_cost_of_a_score_is_its_time_over_that_of_attention() -> None:
    threads = native.threads()
    measured = measure_score_cost(items=60, beam=20, turns=2)
    assert measured["score_cost"] == measured["ms_default_score"] / measured["ms_attention_on_all_levels"]
    leaf_attention = measured["ms_with_leaf_attention"] / measured["ms_attention_on_all_levels"]
    assert measured["score_cost_with_leaf_attention"] == leaf_attention
    assert native.threads() == threads


def test_retrieval_prints_the_cost_of_the_score(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(retrieval, "measure_retrieval", lambda **_: {"ms_single": 1.0})
    arguments = ["retrieval", "--items", "60", "--beam", "20", "--json"]
    monkeypatch.setattr(sys, "argv", arguments)
    retrieval.main()
    printed = json.loads(capsys.readouterr().out)
    assert printed.keys() >= {"ms_single", "score_cost", "score_cost_with_leaf_attention"}


def test_the_frontier_is_printed_by_the_size_of_the_catalogue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("faiss")
    arguments = ["frontier", "--items", "60", "200", "--followers", "5", "--requests", "3", "--json"]
    monkeypatch.setattr(sys, "argv", arguments)
    frontier.main()
    printed = json.loads(capsys.readouterr().out)
    assert list(printed["ms_over_hnsw"]) == ["60", "200"]
    assert "accuracy_of_default" in printed
    for row in printed["catalogues"]:
        assert row["ms_over_hnsw"] == pytest.approx(row["ms_default"] / row["ms_hnsw"], rel=0.01)
        assert row["followers"] == 5
        assert row["link_bytes_per_item"] == 60
        assert row["recall_default"] == 1.0  # the beam is as wide as the catalogue, or nearly
        assert row["recall_hnsw"] > 0.9


def test_hnsw_finds_the_largest_inner_products() -> None:
    pytest.importorskip("faiss")
    vectors = Catalogue.draw(items=100, followers=5).item_vectors
    found = frontier.Hnsw(vectors).search(vectors[:10], k=3)
    assert found[:, 0].tolist() == list(range(10))
    assert np.array_equal(np.sort(found, axis=1), np.sort(np.argsort(-vectors[:10] @ vectors.T, axis=1)[:, :3], axis=1))


def test_without_faiss_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(SystemExit, match=r"pip install 'beamtree\[bench\]'"):
        frontier.Hnsw(np.eye(4, dtype=np.float32))


def test_training_is_compared_at_the_sizes_of_both_presets() -> None:
    measured = measure_default_training(items=60, turns=1, shape=Shape(users=20, beyond=30.0, items=60))
    ratio = measured["default_over_all_levels"]
    assert list(ratio) == list(PRESETS) == ["small", "paper"]
    for preset in PRESETS:
        rates = measured["instances_per_second_default"][preset], measured["instances_per_second_all_levels"][preset]
        assert ratio[preset] == rates[0] / rates[1]
