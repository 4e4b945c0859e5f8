"""The public model: explicit arguments, users of a log, explanations."""

import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from beamtree.errors import InputError
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.request import RecommendOptions
from beamtree.training.exclusive import claimed_folder
from tests.serving.models import save_model
from tests.small import small_config, two_group_log

LOG = pl.DataFrame({"user_id": ["u1", "u1", "u2"], "item_id": [100, 131, 117], "timestamp": [1, 2, 3]})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> DeepTreeRetriever:
    folder: Path = tmp_path_factory.mktemp("model")
    save_model(folder, 60, parts=("attention", "memory"))
    return DeepTreeRetriever.load(folder)


def test_two_fits_do_not_share_a_folder_of_checkpoints(tmp_path: Path) -> None:
    model = DeepTreeRetriever(small_config())
    with (
        claimed_folder(tmp_path / "work", otherwise=""),
        pytest.raises(InputError, match=r"Another fit writes to .*work: process .* or give another work_dir"),
    ):
        model.fit(two_group_log(), work_dir=tmp_path / "work")


@pytest.mark.parametrize("name", ["recommend", "recommend_histories"])
def test_every_option_has_its_name_and_nothing_else_is_taken(model: DeepTreeRetriever, name: str) -> None:
    options = inspect.signature(RecommendOptions).parameters.keys() - {"unknown"}
    assert options <= inspect.signature(getattr(DeepTreeRetriever, name)).parameters.keys()
    for unknown in ({"top_k": 7}, {"N": 3}, {"beam_width": 5}):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            getattr(model, name)([[100]], **unknown)


def test_users_of_a_log_get_what_their_histories_get(model: DeepTreeRetriever) -> None:
    table = model.recommend(["u2", "u1"], interactions=LOG, k=3, exclude=[101])
    assert table["user_id"].to_list() == ["u2"] * 3 + ["u1"] * 3
    bare = model.recommend_histories([[117], [100, 131]], k=3, exclude=[101])
    assert table.drop("user_id").equals(bare.drop("request"))
    assert model.recommend(interactions=LOG, k=1)["user_id"].to_list() == ["u1", "u2"]
    with pytest.raises(InputError, match="carries no histories"):
        model.recommend(["u1"])


def test_an_item_is_explained_whether_it_is_recommended_or_not(model: DeepTreeRetriever) -> None:
    table = model.recommend_histories([[100, 131]], k=60, exclude_seen=False, explain=True)
    for place in (0, 30, 59):
        row = table.row(place, named=True)
        explained = model.explain([100, 131], row["item_id"])
        assert explained.score == pytest.approx(row["score"], rel=1e-4)
        assert explained.parts == {part: pytest.approx(row[part], rel=1e-4) for part in ("attention", "memory")}
        assert [evidence.item_id for evidence in explained.because_of] == row["because_of"]


def test_similar_items_come_by_vector_or_by_what_followed(model: DeepTreeRetriever) -> None:
    by_embedding, by_memory = model.similar_items([120], k=3), model.similar_items([120], k=3, by="memory")
    assert by_embedding.columns == by_memory.columns == ["item_id", "similar_id", "similarity", "rank"]
    assert by_embedding["similarity"].is_between(-1.0, 1.0).all()
    assert by_memory["similarity"].to_list() == sorted(by_memory["similarity"], reverse=True)
    assert by_embedding["rank"].to_list() == [1, 2, 3]


def test_scores_of_pairs_are_those_of_recommendations(model: DeepTreeRetriever) -> None:
    best = model.recommend(interactions=LOG, k=3)
    pairs = best.select("user_id", "item_id")
    for given in (pairs, pairs.to_pandas(), pairs.to_arrow(), pairs.rows(), iter(pairs.rows())):
        scored = model.score(given, interactions=LOG)
        assert scored.columns == ["user_id", "item_id", "score"]
        assert scored["score"].to_list() == pytest.approx(best["score"].to_list(), rel=1e-5)
    bare = model.score_histories([[117], [100, 131]], [best["item_id"][3:], best["item_id"][:3]])
    assert bare["request"].to_list() == [0, 0, 0, 1, 1, 1]
    assert bare["score"].to_list() == pytest.approx([*best["score"][3:], *best["score"][:3]], rel=1e-5)


def test_what_has_no_score_is_null(model: DeepTreeRetriever) -> None:
    pairs = [("u1", 101), ("u1", 7), ("nobody", 101), ("u1", 102)]
    scores = model.score(pairs, interactions=LOG)["score"].to_list()
    assert [score is None for score in scores] == [False, True, True, False]
    assert model.score_histories([[7], []], [[101], [101]])["score"].to_list() == [None, None]
    assert model.score_histories([], []).is_empty()


RETRIEVER: Any = DeepTreeRetriever


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda model: model.recommend("u1", interactions=LOG),
            r"users: expected a list of ids, got 'u1'\. Give a list: \['u1'\]",
        ),
        (
            lambda model: model.recommend(LOG, interactions=LOG),
            "users: expected a list, got a table. Give one of its columns",
        ),
        (lambda model: model.recommend_histories("100"), r"histories: .* got '100'\. Give \[\['100'\]\]"),
        (lambda model: model.recommend_histories([100]), "got the id 100 in the place of a list"),
        (lambda model: model.recommend_histories([[100]], exclude="101"), "exclude: expected a list of ids, got '101'"),
        (lambda model: model.recommend_histories([[100]], allow="101"), "allow: expected a list of ids, got '101'"),
        (lambda model: model.similar_items("101"), "items: expected a list of ids, got '101'"),
        (
            lambda model: model.score(["u1"], interactions=LOG),
            r"Expected pairs .* such as \[\('u7', 'i3'\)\]; got 'u1'",
        ),
        (lambda model: model.score(LOG.drop("user_id"), interactions=LOG), "no user_id among item_id, timestamp"),
        (lambda model: model.score_histories([[100]], [101]), "items: expected a list of lists of ids, got the id 101"),
        (lambda model: model.score_histories([[100]], []), "a list of items for each of 1 histories, got 0"),
        (lambda model: model.score([("u1", 101)]), "carries no histories"),
        (lambda model: model.recommend_histories([[100, None]]), "drop missing ids first"),
        (lambda model: model.recommend_histories([pd.Series([100, pd.NA], dtype="Int64")]), "drop missing ids first"),
        (lambda model: model.recommend_histories([[100]], k=2.0), "Expected k as an integer of at least 1, got 2.0"),
        (lambda model: model.evaluate(LOG, held_out="everyone"), "Expected held_out as 'test' or 'validation'"),
        (lambda model: model.evaluate(LOG, cutoffs=[0, 5]), r"Expected cutoffs as positive integers.* got \[0, 5\]"),
        (lambda _: RETRIEVER("small"), "preset='small'; got 'small'"),
        (lambda _: RETRIEVER(small_config(), preset="small"), "got both"),
        (lambda _: RETRIEVER(preset="tiny"), "There is no preset 'tiny'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_remedy(
    model: DeepTreeRetriever, call: Callable[[Any], object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        call(model)


USERS = ["u2", "u1"]
ID_COLUMNS: list[Callable[[list[str]], Any]] = [
    tuple,
    iter,
    np.array,
    lambda ids: np.array(ids, dtype=object),
    pl.Series,
    lambda ids: pl.Series(ids, dtype=pl.Categorical),
    pa.array,
    lambda ids: pa.chunked_array([ids]),
    lambda ids: pa.array(ids).dictionary_encode(),
    pd.Series,
    pd.Index,
    pd.Categorical,
    lambda ids: pd.Series(ids, dtype="string"),
    lambda ids: pd.array(ids, dtype="string[pyarrow]"),
    lambda ids: pd.array(ids, dtype="string[python]"),
]


@pytest.mark.parametrize("column", ID_COLUMNS)
def test_ids_come_in_any_column(model: DeepTreeRetriever, column: Callable[[list[str]], Any]) -> None:
    wanted = model.recommend(USERS, interactions=LOG, k=np.int64(2))  # type: ignore[arg-type]
    assert model.recommend(column(USERS), interactions=LOG, k=2).equals(wanted)


def test_histories_of_texts_come_in_any_column() -> None:
    fitted = DeepTreeRetriever(small_config(model={"parts": ["memory"]})).fit(two_group_log())
    histories = [["a1", "a2"], ["b3"]]
    wanted = fitted.recommend_histories(histories, k=2)
    given: list[Any] = [pl.Series(histories), pa.array(histories), pd.Series(histories)]
    given += [[column(history) for history in histories] for column in ID_COLUMNS]
    for some in given:
        assert fitted.recommend_histories(some, k=2).equals(wanted), type(some)


def test_a_model_says_what_it_is(model: DeepTreeRetriever) -> None:
    assert repr(model).startswith("DeepTreeRetriever(60 items, score attention + memory, beam 8, test recall@20 0.")
    assert repr(DeepTreeRetriever(preset="instant")) == "DeepTreeRetriever(score memory; not fitted yet)"


def test_a_comparison_is_readable_and_its_keys_do_not_depend_on_the_beam() -> None:
    fitted = DeepTreeRetriever(small_config(model={"parts": ["memory"]})).fit(two_group_log())
    found = fitted.evaluate(beam=9, cutoffs=[5, 3], baselines="popularity")
    assert list(found) == ["beam", "exact", "popularity"]
    assert list(found["beam"])[:2] == ["precision@3", "recall@3"]
    assert repr(found).splitlines()[0].split() == ["recall@3", "f@3", "ndcg@3", "recall@5", "f@5", "ndcg@5"]
    assert "in F@3" in repr(found).splitlines()[-1]
    assert "array" not in repr(found["beam"])
    assert found.to_frame()["system"].to_list() == list(found)
    assert found.to_frame()["recall@3"][0] == found["beam"]["recall@3"]


def test_pickled_models_answer_as_before(model: DeepTreeRetriever) -> None:
    fitted = DeepTreeRetriever(small_config(model={"parts": ["memory"]})).fit(two_group_log())
    again = pickle.loads(pickle.dumps(fitted))
    assert again.recommend(["a01"], k=3).equals(fitted.recommend(["a01"], k=3))
    assert dict(again.evaluate(baselines="none")) == dict(fitted.evaluate(baselines="none"))
    loaded = copy.deepcopy(model)
    assert loaded.recommend_histories([[100]], k=3).equals(model.recommend_histories([[100]], k=3))


def test_progress_is_shown_where_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    config = small_config(model={"parts": ["memory"]})
    DeepTreeRetriever(config).fit(two_group_log())
    assert capsys.readouterr().err == "", "nobody watches"
    DeepTreeRetriever(config).fit(two_group_log(), progress=True)
    shown = capsys.readouterr().err
    assert "48 of 48 users have at least 2 interactions" in shown
    assert "all parts together" in shown
    DeepTreeRetriever(config).fit(two_group_log(), progress=True, listen=lambda _: None)
    assert capsys.readouterr().err == "", "a listener takes the place of the bar"
