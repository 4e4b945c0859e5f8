"""Lines on disk."""

from pathlib import Path

import pytest

from beamtree.errors import DataError
from experiments.lines import append_lines, read_lines, table


def test_lines_are_appended_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    assert read_lines(file) == []
    append_lines(file, [{"a": 1}])
    append_lines(file, [{"a": 2}, {"b": None}])
    assert read_lines(file) == [{"a": 1}, {"a": 2}, {"b": None}]


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(DataError, match="line 2 is not JSON"):
        read_lines(tmp_path / "lines.jsonl")


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    assert table(["name", "value"], [["a", "0.1"], ["b", ""]]).splitlines()[1] == "| --- | ---: |"
