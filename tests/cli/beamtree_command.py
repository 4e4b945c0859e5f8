"""Runs the command in this process, as a person would in a folder of their own, and keeps what it printed."""

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from beamtree.cli.main import run

TINY = """
[data]
min_interactions = 5
[model]
parts = ["attention", "memory"]
embedding_dim = 4
layers = [8, 6, 4]
network = { windows = [4, 2, 1], attention_hidden = 4 }
[training]
negatives = 4
batch_size = 32
epochs = 1
learning_rate = 0.01
schedule = { validations = 2 }
[retrieval]
beam_width = 10
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """Standard error with its line breaks undone."""
        return " ".join(self.err.split())


class Command:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.setenv("COLUMNS", "200")

    def __call__(self, *arguments: str) -> Outcome:
        self._monkeypatch.setattr(sys, "argv", ["beamtree", *arguments])
        code = 0
        try:
            run()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        captured = self._capsys.readouterr()
        return Outcome(code, captured.out, captured.err)


def write_sample(folder: Path) -> None:
    """ratings.csv, items.csv and tiny.toml: 40 users u0.., 24 items i0.., even users like even items."""
    generator = np.random.default_rng(5)
    with (folder / "ratings.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["user_id", "item_id", "timestamp", "rating"])
        for user in range(40):
            liked = generator.permutation(np.arange(user % 2, 24, 2))
            others = generator.permutation(np.arange(1 - user % 2, 24, 2))[:4]
            for time, item in enumerate([*liked, *others]):
                writer.writerow([f"u{user}", f"i{item}", 1_000 + time, 1 + int(item) % 5])
    rows = [f"i{item},{'even' if item % 2 == 0 else 'odd'},Title {item}" for item in range(24)]
    (folder / "items.csv").write_text("item_id,category,title\n" + "\n".join(rows) + "\n", encoding="utf-8")
    (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
