from beamtree.baselines.personal_frequency import PersonalFrequency
from tests.baselines.small_logs import ask, budget, dataset_of, whole


def test_own_items_by_how_often_then_how_late_then_what_others_like() -> None:
    """Of the history 1 2 2 3 1 4: twice 1 (last at place 4) and 2 (at 2), once 4 (at 5) and 3 (at 3); then 5 and 0."""
    dataset = dataset_of([[5, 5, 5, 0], [5, 0]], num_items=6)
    fitted = PersonalFrequency().fit(dataset, whole(dataset), budget=budget(exclude_seen=False))
    found = fitted.search(ask([1, 2, 2, 3, 1, 4], []), k=6)
    assert found.items.tolist() == [[1, 2, 4, 3, 5, 0], [5, 0, 1, 2, 3, 4]]


def test_with_seen_items_excluded_popularity_is_left() -> None:
    dataset = dataset_of([[2, 2, 1], [3, 3, 3]], num_items=4)
    fitted = PersonalFrequency().fit(dataset, whole(dataset), budget=budget())
    assert fitted.search(ask([2, 2], excluded=[[2, 2]]), k=3).items.tolist() == [[3, 1, 0]]
