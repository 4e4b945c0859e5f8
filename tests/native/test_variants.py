import os
import subprocess
import sys
from pathlib import Path

import pytest

from beamtree import native
from beamtree.errors import SettingsError
from beamtree.native.variants import VARIABLE, choose_variant, chosen_variant, compiled_variants

MODEL = Path(__file__).parents[1] / "fixtures" / "artefact-v3"
WHEEL = ("x86-64-v3", "baseline")
NEW_CPU = {"native", "x86-64-v3", "baseline"}
OLD_CPU = {"native", "baseline"}
needs_kernels = pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")


def test_the_best_that_the_cpu_can_run_is_chosen() -> None:
    assert choose_variant(None, compiled=WHEEL, runnable=NEW_CPU) == "x86-64-v3"
    assert choose_variant(None, compiled=WHEEL, runnable=OLD_CPU) == "baseline"
    assert choose_variant(None, compiled=("native",), runnable=OLD_CPU) == "native"


def test_a_wish_is_followed() -> None:
    assert choose_variant("baseline", compiled=WHEEL, runnable=NEW_CPU) == "baseline"


def test_kernels_beyond_the_cpu_are_refused() -> None:
    with pytest.raises(SettingsError) as refused:
        choose_variant("x86-64-v3", compiled=WHEEL, runnable=OLD_CPU)
    assert str(refused.value) == (
        "BEAMTREE_KERNELS: expected kernels that this CPU can run, got 'x86-64-v3'. "
        "Set it to baseline, or unset it to get baseline."
    )


@pytest.mark.parametrize("unknown", ["avx2", "native"])
def test_kernels_that_are_not_there_are_refused(unknown: str) -> None:
    with pytest.raises(SettingsError) as refused:
        choose_variant(unknown, compiled=WHEEL, runnable=NEW_CPU)
    assert str(refused.value) == (
        f"BEAMTREE_KERNELS: expected kernels that this installation holds (x86-64-v3, baseline), got '{unknown}'. "
        "Set it to x86-64-v3 or baseline, or unset it to get x86-64-v3."
    )


def test_without_any_the_remedy_is_a_compiler() -> None:
    with pytest.raises(ImportError, match="Install a C\\+\\+ compiler"):
        choose_variant(None, compiled=(), runnable=NEW_CPU)


@needs_kernels
@pytest.mark.parametrize("variant", compiled_variants())
def test_the_variable_decides_which_module_is_loaded(variant: str) -> None:
    code = "from beamtree.native import _kernels; print(_kernels.__name__, _kernels.Tree.__module__)"
    answer = run(code, kernels=variant)
    name = f"beamtree.native._kernels_{variant.replace('-', '_')}"
    assert answer.stdout.split() == [name, name], answer.stderr


@needs_kernels
def test_an_empty_variable_is_no_wish() -> None:
    answer = run("from beamtree.native.variants import chosen_variant; print(chosen_variant())", kernels="")
    assert answer.stdout.split() == [compiled_variants()[0]]


@needs_kernels
def test_doctor_names_the_chosen_kernels(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from beamtree.cli.doctor import doctor

    monkeypatch.delenv(VARIABLE, raising=False)
    doctor()
    assert f"{chosen_variant()}, chosen from {', '.join(compiled_variants())}" in capsys.readouterr().out
    monkeypatch.setenv(VARIABLE, compiled_variants()[-1])
    doctor()
    assert f"{compiled_variants()[-1]}, forced by BEAMTREE_KERNELS" in capsys.readouterr().out


@needs_kernels
def test_doctor_and_commands_say_what_is_wrong_with_the_variable() -> None:
    shown = run("import sys; sys.argv = ['beamtree', 'doctor']; import beamtree.cli.main as m; m.run()", kernels="avx2")
    assert "got 'avx2'" in shown.stdout, shown.stderr
    refused = run(f"import beamtree; beamtree.load({str(MODEL)!r})", kernels="avx2")
    assert "SettingsError: BEAMTREE_KERNELS: expected kernels that this installation holds" in refused.stderr


def run(code: str, *, kernels: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, VARIABLE: kernels, "COLUMNS": "300"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
