"""README.md in a model folder: true, the same for the same model, and no part of it."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import yaml

from beamtree.artefact import MODEL_CARD, Artefact, load_artefact, save_artefact
from beamtree.errors import ArtefactError
from beamtree.model_card import FRONT_MATTER, model_card, write_model_card
from beamtree.recommender import DeepTreeRetriever, load
from tests.fixtures.write_artefact_v1 import small_artefact
from tests.small import small_config, two_group_log


def fitted() -> DeepTreeRetriever:
    return DeepTreeRetriever(small_config()).fit(two_group_log())


@pytest.fixture(scope="module")
def model() -> DeepTreeRetriever:
    return fitted()


def tables(card: str) -> Iterator[dict[str, list[str]]]:
    """The tables of a card: the first cell of each row -> its other cells."""
    for block in card.split("\n\n"):
        if block.startswith("| "):
            rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in block.splitlines()]
            assert len({len(row) for row in rows}) == 1, block
            yield {row[0]: row[1:] for row in rows}


def test_a_saved_model_has_a_card_with_its_results_beside_baselines(model: DeepTreeRetriever, tmp_path: Path) -> None:
    comparison = model.evaluate()
    model.save(tmp_path)
    card = (tmp_path / MODEL_CARD).read_text(encoding="utf-8")
    _, front, body = card.split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "beamtree"
    assert [line for line in body.splitlines() if line.startswith("## ")] == [
        *("## Data", "## Results", "## Settings", "## Limits", "## How to use it"),
    ]
    data, results, settings = tables(body)
    assert (data["users"], data["items"], data["interactions"]) == (["48"], ["20"], ["768"])
    shown = results.pop("system")
    assert list(results) == ["---", *comparison.labelled()]
    for name, metrics in comparison.labelled().items():
        assert results[name] == [f"{metrics[metric]:.4f}" for metric in shown]
    assert comparison.verdict is not None
    assert comparison.verdict.line() in body
    assert "protocol clean: distinct labels not seen before, seen items are not recommended" in body
    assert model.recommender.artefact.training["split"] in body
    assert settings["`retrieval.beam_width`"] == ["`8`"]
    assert "`tree.branching`" not in settings, "a default is not listed"


def test_the_example_of_a_card_runs(model: DeepTreeRetriever, tmp_path: Path) -> None:
    model.save(tmp_path)
    [code] = (tmp_path / MODEL_CARD).read_text(encoding="utf-8").split("```")[1::2]
    told = code.removeprefix("python\n").replace("path/to/this/folder", str(tmp_path))
    names: dict[str, object] = {}
    exec(compile(told.replace("model.recommend", "answer = model.recommend"), "card", "exec"), names)
    answer = names["answer"]
    assert isinstance(answer, pl.DataFrame)
    assert answer.height == 10


def test_the_same_log_and_seed_give_the_same_card(model: DeepTreeRetriever, tmp_path: Path) -> None:
    again = fitted()
    model.evaluate()
    again.evaluate()
    model.save(tmp_path / "first")
    again.save(tmp_path / "second")
    assert (tmp_path / "first" / MODEL_CARD).read_bytes() == (tmp_path / "second" / MODEL_CARD).read_bytes()


def test_a_card_is_no_part_of_the_model(model: DeepTreeRetriever, tmp_path: Path) -> None:
    save_artefact(tmp_path / "without", model.recommender.artefact)
    model.save(tmp_path / "with")
    version = load_artefact(tmp_path / "without").version
    card = tmp_path / "with" / MODEL_CARD
    assert load_artefact(tmp_path / "with").version == version
    card.write_text("of my own")
    assert load_artefact(tmp_path / "with").version == version
    card.unlink()
    os.mkfifo(card)  # whoever opened it would wait for ever
    assert load(tmp_path / "with").recommender.artefact.version == version


def test_saving_replaces_a_card_of_beamtree_and_leaves_one_of_the_user(tmp_path: Path) -> None:
    artefact = small_artefact()
    card = tmp_path / MODEL_CARD
    own = "# My project\n"
    card.write_text(own)
    for _ in range(2):
        save_artefact(tmp_path, artefact)
        write_model_card(tmp_path, artefact)
        assert card.read_text() == own
    card.unlink()
    write_model_card(tmp_path, artefact)
    assert card.read_text() == model_card(artefact)
    write_model_card(tmp_path, replace(artefact, metrics={}))
    assert card.read_text() == model_card(replace(artefact, metrics={})) != model_card(artefact)
    kept = card.read_text().replace(FRONT_MATTER.splitlines()[1] + "\n", "")
    card.write_text(kept)
    write_model_card(tmp_path, artefact)
    assert card.read_text() == kept, "without its first comment a card belongs to the user"


def test_a_card_without_baselines_or_metrics_says_so() -> None:
    assert "No baseline had been measured when this model was saved" in model_card(small_artefact())
    assert "nothing was measured" in model_card(replace(small_artefact(), metrics={}))


def test_names_that_a_stranger_chose_stay_in_their_cells() -> None:
    table = small_artefact().item_table.with_columns(pl.lit(1).alias("a|b\n## `x` <b>"), pl.lit(2).alias("```\n---"))
    training = {"log": {"users": "many", "interactions": None, "density": [1]}, "split": "one | two\n\n<script>"}
    card = model_card(replace(small_artefact(), item_table=table, training=training))
    data, results, _ = tables(card.split("---\n", 2)[2])
    assert "users" not in data
    assert data["item columns"][0].endswith("`a b ##  x  <b>`, `    ---`")
    assert results["system"]
    assert "\n<script>" not in card
    assert card.count("```") == 2


def test_a_card_that_cannot_be_written_is_an_error_and_the_model_is_whole(tmp_path: Path) -> None:
    artefact = small_artefact()
    save_artefact(tmp_path, artefact)
    (tmp_path / f".{MODEL_CARD}.{os.getpid()}.tmp").mkdir()
    with pytest.raises(ArtefactError, match="The model is saved, but its card"):
        write_model_card(tmp_path, artefact)
    loaded: Artefact = load_artefact(tmp_path)
    assert loaded.item_table.equals(artefact.item_table)
