from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import ndcg_score, precision_recall_fscore_support

from beamtree.errors import InputError
from beamtree.evaluation.metrics import Labels, Metrics, measure


def labels_of(lists: list[list[int]]) -> Labels:
    flat = np.array([item for entry in lists for item in entry], dtype=np.int32)
    return flat, np.cumsum([0] + [len(entry) for entry in lists], dtype=np.int64)


def lists_of(rows: list[list[int]]) -> NDArray[np.int32]:
    return np.array(rows, dtype=np.int32)


def test_one_user_worked_out() -> None:
    # Items 5 and 7 of the four labels stand on ranks 2 and 4.
    metrics = measure(lists_of([[1, 5, 2, 7]]), labels_of([[7, 5, 8, 9]]), num_items=10, cutoffs=[2, 4])
    assert dict(metrics) == pytest.approx(
        {
            "precision@2": 1 / 2,
            "recall@2": 1 / 4,
            "f@2": 1 / 3,
            "ndcg@2": (1 / log2(3)) / (1 + 1 / log2(3)),
            "hit_rate@2": 1,
            "mrr@2": 1 / 2,
            "coverage@2": 2 / 10,
            "distinct_lists@2": 1,
            "precision@4": 2 / 4,
            "recall@4": 2 / 4,
            "f@4": 1 / 2,
            "ndcg@4": (1 / log2(3) + 1 / log2(5)) / (1 + 1 / log2(3) + 1 / 2 + 1 / log2(5)),
            "hit_rate@4": 1,
            "mrr@4": 1 / 2,
            "coverage@4": 4 / 10,
            "distinct_lists@4": 1,
        }
    )
    assert list(metrics)[:8] == [
        f"{name}@2" for name in ("precision", "recall", "f", "ndcg", "hit_rate", "mrr", "coverage", "distinct_lists")
    ]


def test_f_is_averaged_over_users_and_not_taken_from_averages() -> None:
    # One user is met fully (P = R = F = 1), one not at all: the average F is 1/2.
    # Third: P = 1/2, R = 1/1, F = 2/3. F of the average P (1/2) and R (2/3) would be 4/7 instead of 5/9.
    metrics = measure(lists_of([[0, 1], [2, 3], [4, 5]]), labels_of([[1, 0], [0, 1], [5]]), num_items=6, cutoffs=[2])
    assert metrics.per_user["f@2"].tolist() == pytest.approx([1, 0, 2 / 3])
    assert metrics["f@2"] == pytest.approx(5 / 9)
    assert metrics["precision@2"] == pytest.approx(1 / 2)
    assert metrics["recall@2"] == pytest.approx(2 / 3)
    assert metrics.num_users == 3


def test_repeated_labels_lengthen_the_list_but_are_met_once() -> None:
    # The label list 3, 3, 4 has length 3 and two distinct items; both are recommended, on ranks 1 and 2.
    metrics = measure(lists_of([[3, 4, 0, 1]]), labels_of([[3, 3, 4]]), num_items=5, cutoffs=[4])
    assert metrics["precision@4"] == pytest.approx(2 / 4)
    assert metrics["recall@4"] == pytest.approx(2 / 3)
    assert metrics["f@4"] == pytest.approx(2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3))
    assert metrics["ndcg@4"] == pytest.approx(1), "the perfect list shows each distinct label once"


def test_an_item_recommended_twice_is_one_hit_on_its_first_rank() -> None:
    metrics = measure(lists_of([[2, 2, 1]]), labels_of([[2, 0]]), num_items=3, cutoffs=[3])
    assert metrics["precision@3"] == pytest.approx(1 / 3)
    assert metrics["recall@3"] == pytest.approx(1 / 2)
    assert metrics["ndcg@3"] == pytest.approx(1 / (1 + 1 / log2(3)))


def test_nothing_recommended_is_no_item() -> None:
    # An empty place meets no label, not even an unknown one, and precision still divides by the cutoff.
    metrics = measure(lists_of([[-1, 1, -1]]), labels_of([[-1, 1]]), num_items=2, cutoffs=[3])
    assert metrics["precision@3"] == pytest.approx(1 / 3)
    assert metrics["recall@3"] == pytest.approx(1 / 2)
    assert metrics["mrr@3"] == pytest.approx(1 / 2)
    assert metrics["ndcg@3"] == pytest.approx((1 / log2(3)) / (1 + 1 / log2(3)))
    assert metrics["coverage@3"] == pytest.approx(1 / 2)


def test_an_unknown_label_of_one_user_is_not_the_last_item_of_the_user_before() -> None:
    metrics = measure(lists_of([[4], [0]]), labels_of([[1], [-1]]), num_items=5, cutoffs=[1])
    assert metrics["hit_rate@1"] == 0


def test_everybody_gets_the_same() -> None:
    rows = [[0, 1, 2], [2, 1, 0], [0, 1, 2], [0, 1, 3]]
    metrics = measure(lists_of(rows), labels_of([[0]] * 4), num_items=8, cutoffs=[2, 3])
    assert metrics["distinct_lists@3"] == 2 / 4, "order does not make a list another one"
    assert metrics["distinct_lists@2"] == 2 / 4
    assert metrics["coverage@3"] == 4 / 8
    assert metrics["mrr@3"] == pytest.approx((1 + 1 / 3 + 1 + 1) / 4)


def random_case(seed: int, *, users: int, columns: int, items: int) -> tuple[NDArray[np.int32], list[list[int]]]:
    generator = np.random.default_rng(seed)
    rows = np.stack([generator.permutation(items)[:columns] for _ in range(users)]).astype(np.int32)
    labels = [generator.permutation(items)[: generator.integers(1, items + 1)].tolist() for _ in range(users)]
    return rows, labels


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), users=st.integers(1, 12), columns=st.integers(1, 9), spare=st.integers(1, 20))
def test_same_numbers_as_scikit_learn(seed: int, users: int, columns: int, spare: int) -> None:
    items = columns + spare
    rows, labels = random_case(seed, users=users, columns=columns, items=items)
    metrics = measure(rows, labels_of(labels), num_items=items, cutoffs=[columns])
    shown, wanted = np.zeros((users, items)), np.zeros((users, items))
    scores = np.zeros((users, items))
    for user in range(users):
        shown[user, rows[user]] = 1
        scores[user, rows[user]] = np.arange(columns, 0, -1)
        wanted[user, labels[user]] = 1
    precision, recall, f, _ = precision_recall_fscore_support(wanted, shown, average="samples", zero_division=0)
    assert metrics[f"precision@{columns}"] == pytest.approx(precision)
    assert metrics[f"recall@{columns}"] == pytest.approx(recall)
    assert metrics[f"f@{columns}"] == pytest.approx(f)
    assert metrics[f"ndcg@{columns}"] == pytest.approx(ndcg_score(wanted, scores, k=columns))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_same_numbers_as_a_loop_over_users_with_repeats_and_gaps(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.integers(-1, 12, size=(6, 5)).astype(np.int32)
    labels = [generator.integers(-1, 12, size=generator.integers(1, 9)).tolist() for _ in range(6)]
    metrics = measure(rows, labels_of(labels), num_items=12, cutoffs=[3, 5])
    for cutoff in (3, 5):
        for user in range(6):
            ranks: dict[int, int] = {}
            for rank, item in enumerate(rows[user, :cutoff].tolist(), start=1):
                if item >= 0 and item in labels[user]:
                    ranks.setdefault(item, rank)
            precision, recall = len(ranks) / cutoff, len(ranks) / len(labels[user])
            distinct = len({item for item in labels[user] if item >= 0}) + labels[user].count(-1)
            perfect = sum((1 / log2(1 + rank) for rank in range(1, min(distinct, cutoff) + 1)), 0.0)
            expected = {
                "precision": precision,
                "recall": recall,
                "f": 2 * precision * recall / (precision + recall) if ranks else 0.0,
                "ndcg": sum((1 / log2(1 + rank) for rank in ranks.values()), 0.0) / perfect,
                "hit_rate": float(bool(ranks)),
                "mrr": 1 / min(ranks.values()) if ranks else 0.0,
            }
            got = {name: metrics.per_user[f"{name}@{cutoff}"][user] for name in expected}
            assert got == pytest.approx(expected)


def test_averages_are_means_of_the_users() -> None:
    rows, labels = random_case(3, users=20, columns=6, items=15)
    metrics = measure(rows, labels_of(labels), num_items=15, cutoffs=[3, 6])
    assert len(metrics) == 16
    assert {type(value) for value in metrics.values()} == {float}
    assert {name: float(values.mean()) for name, values in metrics.per_user.items()} == {
        name: value for name, value in metrics.items() if not name.startswith(("coverage", "distinct_lists"))
    }
    assert all(values.shape == (20,) for values in metrics.per_user.values())


def test_results_do_not_change() -> None:
    metrics: Metrics = measure(lists_of([[0]]), labels_of([[0]]), num_items=1, cutoffs=[1])
    with pytest.raises(ValueError, match="read-only"):
        metrics.per_user["f@1"][0] = 2
    with pytest.raises(TypeError):
        metrics.averages["f@1"] = 2  # type: ignore[index]


@pytest.mark.parametrize(
    ("rows", "labels", "num_items", "cutoffs", "message"),
    [
        ([[0, 1]], [[0]], 2, [3], r"from 1 to the 2 recommended per user, got \[3\]"),
        ([[0, 1]], [[0]], 2, [0], "from 1 to the 2"),
        ([[0, 1]], [[0]], 2, [], "from 1 to the 2"),
        ([[0, 1]], [[0], [1]], 2, [2], "label offsets for 1 users"),
        ([[0, 1], [0, 1]], [[0], []], 2, [2], "row 1 has none"),
        ([[0, 2]], [[0]], 2, [2], "recommended items from 0 to 1 .* got 0 to 2"),
        ([[0, 1]], [[4]], 2, [2], "label items from 0 to 1 .* got 4 to 4"),
        ([[0, -2]], [[1]], 2, [2], "got -2 to 0"),
        ([[]], [[1]], 2, [1], r"shape \(1, 0\)"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    rows: list[list[int]], labels: list[list[int]], num_items: int, cutoffs: list[int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        measure(lists_of(rows), labels_of(labels), num_items=num_items, cutoffs=cutoffs)
