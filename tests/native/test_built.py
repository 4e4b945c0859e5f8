"""Other tests pass over the kernels where they were not compiled; this one does not let that go unnoticed."""

import shutil

import pytest

from beamtree import native


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no compiler, and the package works without")
def test_the_kernels_are_there_where_a_compiler_is() -> None:
    assert native.is_available()
