"""The benchmark runs, loses no request, and reports every figure that it promises."""

from benchmarks.serving import measure


def test_a_short_run_answers_every_request() -> None:
    measured = measure(num_items=200, connections=4, seconds=0.4, rounds=1)
    assert measured["failures"] == 0
    assert measured["requests"] > 0
    assert measured["p50_ms"] <= measured["p95_ms"] <= measured["p99_ms"]
    assert measured.keys() >= {"requests_per_second", "overhead_ms_p50", "throughput_fraction"}
