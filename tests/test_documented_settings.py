"""Settings that the documentation gives with --set can be used as they stand there."""

import re
from pathlib import Path

import pytest

from beamtree.config import Config

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GIVEN = sorted({text for page in PAGES for text in re.findall(r"--set '([^'\n]+)'", page.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("assignment", GIVEN)
def test_it_is_understood(assignment: str) -> None:
    Config.load(preset="default", assignments=[assignment])


def test_there_are_some() -> None:
    assert any("log.features" in text for text in GIVEN)
