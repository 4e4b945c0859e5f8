"""Coverage-guided fuzzing of the model loader: inputs that reach new code are kept, and mutated further.

    python -m tests.fuzz.guided --runs 20000 --folder build/guided
    python -m tests.fuzz.guided build/guided/findings/crash-...     # one input again

Needs atheris, which is libFuzzer for Python on Linux and x86-64. Its bytes are the choices that `spoiling` draws,
so that nearly every input is a model with a fault in one place and none elsewhere. In the lines that libFuzzer prints,
`cov` counts the branches of this package that were reached, and `ft` tells apart how often.

folder/corpus     inputs that reached something new: the start of the next run, which adds to them
folder/findings   inputs that broke a property
folder/work       the model of the latest input
"""

import argparse
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

# An editable install imports the package by a finder of its own, behind which atheris sees nothing.
sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable")]

with atheris.instrument_imports(include=["beamtree"]):
    from tests.fuzz.properties import check_recommends, check_serves, sound_models
    from tests.fuzz.spoiling import spoil, write_model

NUM_SEEDS = 64
SEED_BYTES = 256
MAX_INPUT_BYTES = 4096
MAX_SECONDS_PER_INPUT = 60
MAX_MEMORY_MB = 4096


def property_of_bytes(work: Path) -> Callable[[bytes], object]:
    """From the bytes of an input to a spoilt model and a check of it, which raises where a property is broken.

    work: an empty folder for models.
    """
    models = sound_models(work)
    directory = work / "model"

    def check(data: Any) -> None:
        holds = data.draw(st.sampled_from([check_recommends, check_serves]))
        write_model(spoil(data.draw(st.sampled_from(models)), data.draw), directory)
        holds(directory)

    test: Any = given(data=st.data())(check)
    run: Callable[[bytes], object] = test.hypothesis.fuzz_one_input
    return run


def libfuzzer_options(folder: Path, *, runs: int) -> list[str]:
    """The options of a run that begins with the corpus of a folder; seeds are written where there is none yet.

    runs: inputs beside those of the corpus.
    """
    corpus, findings = folder / "corpus", folder / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(exist_ok=True)
    if not any(corpus.iterdir()):
        generator = np.random.default_rng(0)
        for number in range(NUM_SEEDS):
            (corpus / f"seed-{number}").write_bytes(generator.bytes(SEED_BYTES))
    return [
        f"-runs={runs + len(list(corpus.iterdir()))}",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-timeout={MAX_SECONDS_PER_INPUT}",
        f"-rss_limit_mb={MAX_MEMORY_MB}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        str(corpus),
    ]


def main() -> None:
    """Parse the command line and fuzz; ends with libFuzzer's exit code, which is 0 where nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20_000, help="how many inputs beside those of the corpus")
    parser.add_argument("--folder", type=Path, default=Path("build/guided"), help="corpus and findings")
    parser.add_argument("inputs", type=Path, nargs="*", help="run these files alone, and mutate nothing")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    options = list(map(str, arguments.inputs)) or libfuzzer_options(arguments.folder, runs=arguments.runs)
    work = arguments.folder / "work"  # libFuzzer ends the process: nothing could be removed afterwards
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    atheris.Setup([sys.argv[0], *options], property_of_bytes(work))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
