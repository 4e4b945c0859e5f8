import importlib.util
import os
import subprocess
import sys

import pytest

from beamtree import native

needs_kernels = pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_a_package_without_the_compiled_module_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert not native.is_available()


@needs_kernels
def test_the_number_of_threads_comes_from_the_environment() -> None:
    answer = run("from beamtree import native; print(native.threads())", BEAMTREE_THREADS="3")
    assert answer.stdout.strip() == "3"


@needs_kernels
def test_a_number_of_threads_that_is_none_is_refused() -> None:
    answer = run("from beamtree import native; native.threads()", BEAMTREE_THREADS="many")
    assert "BEAMTREE_THREADS: expected a whole number from 1 to 1024, got 'many'" in answer.stderr


@needs_kernels
def test_set_threads_wins_over_the_environment() -> None:
    answer = run("from beamtree import native; native.set_threads(2); print(native.threads())", BEAMTREE_THREADS="5")
    assert answer.stdout.strip() == "2"


@needs_kernels
def test_the_kernels_do_not_load_torch() -> None:
    modules = "beamtree.native.score, beamtree.native.training, beamtree.native.relearn"
    answer = run(f"import sys, {modules}; print('torch' in sys.modules)")
    assert answer.stdout.strip() == "False"


@needs_kernels
def test_a_forked_child_can_search() -> None:
    code = """
import os
import numpy as np
from beamtree import native
from beamtree.native.score import KernelScore
from tests.native.plain_network import Shape
from tests.native.small_models import asked_by, random_attention, random_tree
native.set_threads(3)
generator = np.random.default_rng(0)
tree = random_tree(generator, items=500)
attention, _ = random_attention(generator, tree, Shape())
score = KernelScore(tree, attention=attention)
asked = score.requests(asked_by(np.zeros((4, 5), dtype=np.int32)))
ends = set()
for _ in range(20):
    before = score.beam_search(asked, k=5, beam_widths=np.full(4, 40))[0]
    child = os.fork()
    if child == 0:
        os._exit(0 if (score.beam_search(asked, k=5, beam_widths=np.full(4, 40))[0] == before).all() else 1)
    ends.add(os.waitpid(child, 0)[1])
print(ends)
"""
    answer = run(code)
    assert answer.stdout.strip() == "{0}", answer.stderr
