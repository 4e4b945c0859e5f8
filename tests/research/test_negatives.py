"""Negatives of the paper's variants: counts by depth, and draws down the tree with other starts, corrections, modes."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree import native
from beamtree.config import Config
from beamtree.errors import InputError
from beamtree.fitting.computation import build_learner
from beamtree.model.score import build_score
from beamtree.native.training import PathStart
from beamtree.training.negatives import NegativeSampler
from beamtree.training.tree_negatives import TreeSampler
from research.negatives import AdaptiveSampler, PathCorrection, PathMode, PathSampler, negatives_per_level
from tests.small import model_settings, random_histories, random_tree, score_of, stirred_model
from tests.training.path_rule import assert_product_rule
from tests.training.runs import batch_from

TREE = random_tree(60, branching=2, seed=2)


@pytest.fixture(params=["kernels", "torch"])
def computation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "torch":
        monkeypatch.setattr(native, "is_available", lambda: False)
    elif not native.is_available():
        pytest.skip("the kernels were not compiled")


def first_loss(negatives: NegativeSampler, *, dropout: float = 0.0) -> float:
    """The loss of a first batch, before anything is learned."""
    model = model_settings(dropout=dropout)
    config = Config.preset("small", training={"negatives": 4, "seed": 5}, model=model.model_dump())
    learner = build_learner(build_score(config, TREE, seed=1), config=config, negatives=negatives)
    generator = np.random.default_rng(4)
    histories = random_histories(64, length=5, num_items=60, generator=generator)
    batch = batch_from(histories, generator.integers(0, 60, size=64).astype(np.int32))
    return learner.gradients(batch, step=0).loss


@pytest.mark.usefixtures("computation")
def test_by_default_paths_are_those_of_the_product() -> None:
    assert first_loss(PathSampler(4)) == first_loss(TreeSampler(4))


@pytest.mark.usefixtures("computation")
def test_draws_begin_where_they_are_told_to() -> None:
    usual = first_loss(PathSampler(4))
    assert first_loss(PathSampler(4, start="root")) != usual
    assert first_loss(PathSampler(4, start="every")) != usual


@pytest.mark.usefixtures("computation")
def test_the_published_correction_counts_negatives_more() -> None:
    """It leaves out 1 - q of the positive, which divides q of every negative."""
    assert first_loss(PathSampler(4, correction="published")) > first_loss(PathSampler(4))


@pytest.mark.usefixtures("computation")
def test_draws_are_made_with_dropout_where_asked_to() -> None:
    assert first_loss(PathSampler(4, mode="training"), dropout=0.5) != first_loss(PathSampler(4), dropout=0.5)


@pytest.mark.usefixtures("computation")
def test_more_negatives_on_deeper_levels_give_another_loss() -> None:
    assert first_loss(AdaptiveSampler(4, 1.0)) != first_loss(AdaptiveSampler(4, 0.0))


def test_names_tell_all_options_apart() -> None:
    samplers: list[NegativeSampler] = [
        TreeSampler(4),
        PathSampler(4),
        PathSampler(5),
        PathSampler(4, start="root"),
        PathSampler(4, correction="published"),
        PathSampler(4, mode="training"),
        AdaptiveSampler(4, 0.0),
        AdaptiveSampler(4, 0.5),
    ]
    assert len({sampler.name for sampler in samplers}) == len(samplers)


@settings(max_examples=25, deadline=None)
@given(
    num_items=st.integers(2, 60),
    vacant=st.integers(0, 12),
    branching=st.integers(2, 5),
    count=st.integers(1, 9),
    start=st.sampled_from(["level", "root", "every"]),
    correction=st.sampled_from(["negatives", "published"]),
    last_levels=st.sampled_from([None, 1, 2, 3]),
    seed=st.integers(0, 10_000),
)
def test_corrections_are_those_of_the_product_rule(
    num_items: int,
    vacant: int,
    branching: int,
    count: int,
    start: PathStart,
    correction: PathCorrection,
    last_levels: int | None,
    seed: int,
) -> None:
    assert_product_rule(
        PathSampler(count, start, correction),
        count=count,
        num_items=num_items,
        vacant=vacant,
        branching=branching,
        attention_levels=None if start == "root" else last_levels,
        seed=seed,
        start=start,
        correction=correction,
    )


@pytest.mark.parametrize("first_level", [1, 2, 3])
def test_paths_from_the_root_need_all_levels_to_be_learned(first_level: int) -> None:
    tree = random_tree(8, branching=2, seed=1)
    score = score_of(stirred_model(model_settings(attention_levels=tree.height + 1 - first_level), tree, seed=2))
    assert min(score.learned_levels()) == first_level
    PathSampler(3, start="level").draws(score)
    if first_level == 1:
        PathSampler(3, start="root").draws(score)
    else:
        with pytest.raises(InputError, match=f"levels above {first_level} are not learned, got start = 'root'"):
            PathSampler(3, start="root").draws(score)


@pytest.mark.parametrize("part", [{"dropout": 0.5}, {"normalisation": "batch"}], ids=["dropout", "batch statistics"])
def test_draws_go_by_the_model_in_training_where_asked_to(part: dict[str, Any]) -> None:
    tree = random_tree(12, branching=2, seed=6)
    model = stirred_model(model_settings(**part), tree, seed=4)
    generator = np.random.default_rng(5)
    histories = random_histories(30, length=5, num_items=12, generator=generator)
    batch = batch_from(histories, generator.integers(0, 12, size=30).astype(np.int32))
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def corrections(mode: PathMode) -> npt.NDArray[np.float32]:
        draws = PathSampler(3, correction="published", mode=mode).draws(score_of(model))
        return draws.draw(batch, generator=np.random.default_rng(7)).log_correction

    in_use, in_training = corrections("evaluation"), corrections("training")
    np.testing.assert_array_equal(in_training, corrections("training"), err_msg="a function of the generator")
    assert not np.isin(in_training[in_training != 0], in_use[in_use != 0]).any()
    assert not model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize(
    ("num_items", "negatives", "slope", "expected"),
    [
        (8, 10, 0.0, [10, 10, 10]),
        # Shares 2 : 3 : 4 of 30 are 6.67, 10, 13.33: the largest remainder is the first.
        (8, 10, 1.0, [7, 10, 13]),
        # Shares 1.5 : 2 : 2.5 of 6 are 1.5, 2, 2.5: of equal remainders the upper level's goes first.
        (8, 2, 0.5, [2, 2, 2]),
        # Shares 11 : 21 : 31 : 41 of 4 are .42, .81, 1.19, 1.58, by remainders 0 1 1 2; nobody stays without.
        (16, 1, 10.0, [1, 1, 1, 2]),
    ],
)
def test_negatives_per_level_by_hand(num_items: int, negatives: int, slope: float, expected: list[int]) -> None:
    tree = random_tree(num_items, branching=2, seed=0)
    assert negatives_per_level(tree, negatives=negatives, alpha=slope).tolist() == expected


@settings(max_examples=40, deadline=None)
@given(num_items=st.integers(2, 500), negatives=st.integers(5, 100), slope=st.floats(0.0, 2.0))
def test_negatives_per_level_keep_the_total(num_items: int, negatives: int, slope: float) -> None:
    tree = random_tree(num_items, branching=2, seed=0)
    counts = negatives_per_level(tree, negatives=negatives, alpha=slope)
    assert counts.sum() == negatives * tree.height
    assert (np.diff(counts) >= 0).all(), "deeper levels never get fewer"
    shares = 1 + slope * np.arange(1, tree.height + 1)
    np.testing.assert_allclose(counts, counts.sum() * shares / shares.sum(), atol=1.0)
