"""The public model: explicit arguments, users of a log, explanations."""

import inspect
from pathlib import Path

import polars as pl
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
