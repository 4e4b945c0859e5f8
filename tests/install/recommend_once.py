"""Asks an installed beamtree for recommendations, with each of its compiled kernels.

    python tests/install/recommend_once.py

Needs nothing but the installed package, so that it runs in a clean environment. The model is a kept one, and so are its
answers. SystemExit where the package has no compiled kernels, comes from the source tree, or answers something else.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import beamtree
from beamtree.native.variants import VARIABLE, chosen_variant, compiled_variants

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "fixtures" / "artefact-v3"
ANSWERS = ROOT / "tests" / "fixtures" / "artefact-v3-answers.json"
HISTORIES = [[11], [16, 13], [12, 12, 14, 15, 16, 11]]
"""What the first of the kept answers was asked with."""


def check_answer() -> None:
    """One question to the kept model, with the kernels that are chosen here."""
    expected = json.loads(ANSWERS.read_text(encoding="utf-8"))[0]
    found = beamtree.load(MODEL).recommend_histories(HISTORIES).to_dicts()
    if [(row["request"], row["item_id"]) for row in found] != [(row["request"], row["item_id"]) for row in expected]:
        raise SystemExit(f"Kernels {chosen_variant()}: expected {expected}, got {found}.")
    furthest = max(abs(row["score"] - kept["score"]) for row, kept in zip(found, expected, strict=True))
    if not furthest < 1e-3:
        raise SystemExit(f"Kernels {chosen_variant()}: scores differ from the kept ones by up to {furthest}.")
    sys.stdout.write(f"{chosen_variant()}: {len(found)} recommendations as kept\n")


def main() -> None:
    """Check the answer in a process of its own per variant: a process loads one of them."""
    if Path(beamtree.__file__).is_relative_to(ROOT / "beamtree"):
        raise SystemExit(f"Expected an installed package, got the source tree at {beamtree.__file__}.")
    if not compiled_variants():
        raise SystemExit("Expected compiled kernels, got a package without any.")
    for variant in compiled_variants():
        subprocess.run([sys.executable, __file__, "--answer"], env={**os.environ, VARIABLE: variant}, check=True)


if __name__ == "__main__":
    check_answer() if sys.argv[1:] == ["--answer"] else main()
