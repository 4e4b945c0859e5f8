from pathlib import Path

import polars as pl

from benchmarks.ingest import generate_log, measure_ingest


def test_the_benchmark_reads_what_it_generates() -> None:
    measured = measure_ingest(rows=5_000)
    assert measured["rows"] == 5_000
    assert measured["seconds"] > 0
    assert measured["peak_rss_mb"] > 10
    assert 0 < measured["interactions"] <= 5_000


def test_generated_logs_are_repeatable_and_of_the_asked_kind(tmp_path: Path) -> None:
    for name, text_ids in (("a", False), ("b", False), ("c", True)):
        generate_log(tmp_path / name, rows=1_000, text_ids=text_ids)
    first, second, texts = (pl.read_parquet(tmp_path / name) for name in "abc")
    assert first.equals(second)
    assert texts["user_id"].str.starts_with("user-").all()
    assert first["timestamp"].is_sorted()
