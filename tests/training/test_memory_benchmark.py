"""The benchmark of memory goes through every stage of the full method."""

import pytest

from benchmarks.memory import run


@pytest.mark.parametrize("normalisation", ["none", "batch"])
def test_every_stage_has_a_peak(normalisation: str) -> None:
    peaks = run(
        items=60,
        users=200,
        length=20,
        instances=4,
        normalisation=normalisation,
        order="clustering",
    )
    assert list(peaks) == [
        "imports",
        "data",
        "estimator",
        "labels and learning",
        "validation",
        "relearning",
        "search",
        "exact scan",
    ]
    assert all(peak > 10.0 for peak in peaks.values())
